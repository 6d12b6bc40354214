# Benchmarks of the Hopper kernels.
add_executable(bench_sm90_fused ${PROJECT_SOURCE_DIR}/bench/sm90_fused.cpp)
target_include_directories(bench_sm90_fused PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/sm90)
target_link_libraries(bench_sm90_fused PRIVATE megamoe_internal megamoe_cuda CLI11::CLI11)
