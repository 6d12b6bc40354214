# The Hopper kernels. MEGAMOE_CUDA: AUTO builds them when nvcc is found, OFF never; ON insists.
set(MEGAMOE_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE MEGAMOE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MEGAMOE_HAS_CUDA OFF)
if(NOT MEGAMOE_CUDA STREQUAL OFF)
  include(CheckLanguage)
  # Without this CMake asks for its own default architecture while it tests the compiler.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(MEGAMOE_HAS_CUDA ON)
  elseif(MEGAMOE_CUDA STREQUAL ON)
    message(FATAL_ERROR "MEGAMOE_CUDA is ON but there is no nvcc: put it in PATH, or set MEGAMOE_CUDA to OFF")
  endif()
endif()

if(MEGAMOE_HAS_CUDA)
  # CMake 3.25 does not know that newer versions of nvcc have C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  # What host code needs of the toolkit.
  add_library(megamoe_cuda INTERFACE)
  target_link_libraries(megamoe_cuda INTERFACE CUDA::cudart_static)

  # megamoe_cuda_kernels(<target> SOURCES ...): an object library of device code. ptxas tells its
  # registers and spills; tools/check-ptxas reads them from the log of a build.
  function(megamoe_cuda_kernels target)
    cmake_parse_arguments(KERNELS "" "" "SOURCES" ${ARGN})
    add_library(${target} OBJECT ${KERNELS_SOURCES})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${target} PRIVATE
      "SHELL:-gencode arch=compute_90a,code=sm_90a" --expt-relaxed-constexpr
      # Multiply and add fuse only where the code says so: bits must not depend on the compiler's mood.
      -fmad=false
      "SHELL:-Xptxas -v" "SHELL:--diag-suppress 20012" "SHELL:-Xcompiler -Wall")
    target_link_libraries(${target} PRIVATE fmt::fmt CUDA::cudart_static)
    set(MEGAMOE_ROOMS ${MEGAMOE_ROOMS} ${target} CACHE INTERNAL "")
  endfunction()
endif()
