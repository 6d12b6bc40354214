# Benchmarks of the Hopper kernels.
add_executable(bench_sm90_layer ${PROJECT_SOURCE_DIR}/bench/sm90_layer.cpp)
target_include_directories(bench_sm90_layer PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/sm90)
target_link_libraries(bench_sm90_layer PRIVATE megamoe_internal megamoe_cuda CLI11::CLI11)

add_executable(bench_mqa_logits_sm90 ${PROJECT_SOURCE_DIR}/bench/mqa_logits_sm90.cpp)
target_include_directories(bench_mqa_logits_sm90 PRIVATE ${PROJECT_SOURCE_DIR}/tests/mqa_logits)
target_link_libraries(bench_mqa_logits_sm90 PRIVATE megamoe_internal megamoe_cuda CLI11::CLI11)
