# Adds the CUDA backend to the target tapegrad, for a GPU (TAPEGRAD_CUDA) or compiled for the host
# (TAPEGRAD_CUDA_EMULATION, a test tool: tests/cuda_emulation).
set(TAPEGRAD_CUDA AUTO CACHE STRING "CUDA backend: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE TAPEGRAD_CUDA PROPERTY STRINGS AUTO ON OFF)
option(TAPEGRAD_CUDA_EMULATION "Run CUDA kernels on the host, for tests" OFF)
option(TAPEGRAD_CUDA_RACES
       "Detect races of kernels in the emulation (without TAPEGRAD_SANITIZE)" OFF)

file(GLOB CUDA_C_SOURCES CONFIGURE_DEPENDS cuda/*.c cuda/device/*.c)
file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS
     cuda/*.cu cuda/attention/*.cu cuda/conv/*.cu cuda/recurrent/*.cu)
set(TP_CUDA_STATE "no CUDA (TAPEGRAD_CUDA=OFF)")

if(TAPEGRAD_CUDA_EMULATION)
  enable_language(CXX)
  set(TP_CUDA_STATE "CUDA emulated on the host")
  # The toolkit's Philox, if it is installed.
  find_file(TP_CURAND curand_philox4x32_x.h PATHS ENV CUDA_PATH /usr/local/cuda
    PATH_SUFFIXES include NO_CACHE)
  set(emulation ${PROJECT_SOURCE_DIR}/tests/cuda_emulation)
  set(emulator ${emulation}/emulated_device.cpp ${emulation}/emulated_mma.cpp
    ${emulation}/emulated_errors.cpp ${emulation}/emulated_graph.cpp
    ${emulation}/counts.cpp ${emulation}/races.cpp)
  list(APPEND CUDA_KERNELS ${emulator})
  set(emulation_flags -xc++ -std=c++17 -O1 -ffp-contract=fast -fno-strict-aliasing -Wall -Wextra
    -Wno-unknown-pragmas $<$<BOOL:${TAPEGRAD_WERROR}>:-Werror>)
  if(TAPEGRAD_SANITIZE)
    list(APPEND emulation_flags -fsanitize=${TAPEGRAD_SANITIZE} -fno-sanitize-recover=undefined
      ${TP_KERNEL_SANITIZE} -fno-omit-frame-pointer -g1)
    # What switches threads is not what is tested. Its copies call the sanitizer's memcpy.
    set_source_files_properties(${emulation}/emulated_device.cpp PROPERTIES
      COMPILE_OPTIONS "-O2;-fno-sanitize=all;-DTP_ASAN")
    set_source_files_properties(${emulation}/emulated_mma.cpp PROPERTIES COMPILE_OPTIONS -O2)
  endif()
  if(TAPEGRAD_CUDA_RACES) # races.cpp replaces the sanitizer's library
    if(TAPEGRAD_SANITIZE)
      message(FATAL_ERROR "TAPEGRAD_CUDA_RACES cannot be combined with TAPEGRAD_SANITIZE")
    endif()
    list(APPEND emulation_flags -DTP_RACES -fsanitize=thread,alignment -g
      --param=tsan-instrument-func-entry-exit=0)
    set_source_files_properties(${emulator} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
  endif()
  # Compiles kernels for the host and adds them to a target.
  function(tp_emulated_kernels target)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    add_library(${target}_kernels OBJECT ${ARGN})
    target_compile_options(${target}_kernels PRIVATE ${emulation_flags})
    target_compile_definitions(${target}_kernels PRIVATE TP_NO_SITE)
    if(TP_CURAND)
      target_compile_definitions(${target}_kernels PRIVATE TP_CURAND="${TP_CURAND}")
    endif()
    target_include_directories(${target}_kernels PRIVATE ${PROJECT_SOURCE_DIR}
      ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests
      ${PROJECT_SOURCE_DIR}/tests/cuda_emulation)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_kernels>)
  endfunction()
  tp_emulated_kernels(tapegrad ${CUDA_KERNELS})
  # dlopen finds these through the programs' rpath, in place of the real libraries.
  foreach(name cublas cublasLt)
    string(TOLOWER emulated_${name} library)
    add_library(${library} SHARED ${emulation}/${library}.c ${emulation}/emulated_gemm.c)
    target_include_directories(${library} PRIVATE ${emulation} ${PROJECT_SOURCE_DIR})
    target_link_libraries(${library} PRIVATE PkgConfig::OPENBLAS)
    tp_warnings(${library})
    set_target_properties(${library} PROPERTIES C_VISIBILITY_PRESET default
      OUTPUT_NAME ${name} SOVERSION 13 VERSION 13
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/cuda_emulation)
    add_dependencies(tapegrad ${library})
  endforeach()
  # Sums between processes; only tests that set LD_LIBRARY_PATH find it.
  add_library(emulated_nccl SHARED ${emulation}/emulated_nccl.c)
  target_include_directories(emulated_nccl PRIVATE ${emulation} ${PROJECT_SOURCE_DIR})
  tp_warnings(emulated_nccl)
  set_target_properties(emulated_nccl PROPERTIES C_VISIBILITY_PRESET default
    OUTPUT_NAME nccl SOVERSION 2 VERSION 2
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/nccl_emulation)
  set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR}/cuda_emulation)
  add_link_options(-Wl,--disable-new-dtags)
  set(cuda_includes ${emulation})
elseif(NOT TAPEGRAD_CUDA STREQUAL "OFF")
  # Code for 8.0 also runs on 8.6 and 8.9, PTX for 9.0 on later architectures.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    find_file(TP_CURAND curand_philox4x32_x.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
    if(NOT TP_CURAND)
      message(FATAL_ERROR "cuRAND's headers not found: install libcurand-dev of the CUDA toolkit, "
        "or -DTAPEGRAD_CUDA=OFF")
    endif()
    set(TP_CUDA_STATE "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
    add_library(tapegrad_kernels OBJECT ${CUDA_KERNELS})
    set_target_properties(tapegrad_kernels PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
      CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
    target_compile_options(tapegrad_kernels PRIVATE -Xcompiler=-Wall,-Wextra
      $<$<BOOL:${TAPEGRAD_WERROR}>:-Werror=all-warnings>)
    target_compile_definitions(tapegrad_kernels PRIVATE TP_NO_SITE)
    target_include_directories(tapegrad_kernels PRIVATE ${PROJECT_SOURCE_DIR}
      ${PROJECT_SOURCE_DIR}/include)
    target_sources(tapegrad PRIVATE $<TARGET_OBJECTS:tapegrad_kernels>)
    set_target_properties(tapegrad PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}"
      CUDA_RUNTIME_LIBRARY Static)
    # The toolkit's libraries are loaded when a device opens, not linked.
    target_link_libraries(tapegrad PRIVATE CUDA::cudart_static)
    set(cuda_includes ${CUDAToolkit_INCLUDE_DIRS})
  elseif(TAPEGRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "nvcc not found: install the CUDA toolkit, or -DTAPEGRAD_CUDA=OFF")
  else()
    set(TP_CUDA_STATE "no CUDA (nvcc not found)")
  endif()
endif()

if(TARGET tapegrad_kernels)
  target_sources(tapegrad PRIVATE ${CUDA_C_SOURCES})
  target_include_directories(tapegrad SYSTEM PRIVATE ${cuda_includes})
  target_compile_definitions(tapegrad PRIVATE TP_HAVE_CUDA)
endif()
