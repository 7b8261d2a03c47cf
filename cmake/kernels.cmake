# The CPU kernels, compiled once for each instruction set and, if they include real.h, for each
# element type. The first object, base and 32 unless TAPEGRAD_ISA names another set, holds the
# dispatching symbols.
set(KERNEL_FLAGS $<IF:$<CONFIG:Debug>,-O1,-O3> -fno-math-errno -fno-trapping-math -ffp-contract=fast
  -fopenmp-simd)
if(TAPEGRAD_FUZZ) # they read no files: building them quickly matters more
  set(KERNEL_FLAGS -O1 -fno-vectorize -fopenmp-simd)
endif()
# Half of the time of sanitized tests is spent in products, which -O2 halves. Optimisers take a
# seventh of a short training run.
set_source_files_properties(${PROJECT_SOURCE_DIR}/cpu/gemm.c ${PROJECT_SOURCE_DIR}/cpu/optim.c
  PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Debug>:-O2>)
# Where a loop is not instrumented (cpu/checked.h), GCC would leave its variables poisoned.
if(TAPEGRAD_SANITIZE MATCHES "address")
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/cpu/gemm.c APPEND PROPERTY COMPILE_OPTIONS
    -fno-sanitize-address-use-after-scope)
endif()
# Leaves loops for a maximum as they are, since NaN could be in them.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  list(APPEND KERNEL_FLAGS -Wno-pass-failed)
endif()
set(ISA_base_FLAGS "")
set(ISA_avx2_FLAGS -mavx2 -mfma -mprefer-vector-width=256)
set(ISA_avx512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma
  -mprefer-vector-width=512)
set(ISAS base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND ISAS avx2 avx512)
endif()

# TAPEGRAD_ISA=native: the best set whose instructions the compiler finds in this processor.
function(tp_native_isa result)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -march=native -dM -E -x c /dev/null OUTPUT_VARIABLE
    macros ERROR_QUIET)
  foreach(isa ${ISAS})
    set(runs TRUE)
    foreach(flag ${ISA_${isa}_FLAGS})
      string(REGEX REPLACE "^-m" "" feature ${flag})
      string(TOUPPER ${feature} feature)
      if(NOT flag MATCHES "=" AND NOT macros MATCHES "__${feature}__")
        set(runs FALSE)
      endif()
    endforeach()
    if(runs)
      set(best ${isa})
    endif()
  endforeach()
  set(${result} ${best} PARENT_SCOPE)
endfunction()

set(ISA_ALONE "")
if(NOT TAPEGRAD_ISA STREQUAL "all")
  set(isa ${TAPEGRAD_ISA})
  if(isa STREQUAL "native")
    tp_native_isa(isa)
  endif()
  if(NOT isa IN_LIST ISAS)
    message(FATAL_ERROR "TAPEGRAD_ISA is '${isa}'; use all, native, or one of: ${ISAS}")
  endif()
  set(ISAS ${isa})
  string(TOUPPER TP_ISA_ALONE=TP_ISA_${isa} ISA_ALONE)
endif()
list(GET ISAS 0 ISA_FIRST)

# Adds LIBRARY_ISA_fBITS, the objects of these kernel files.
function(tp_kernels library isa bits)
  set(target ${library}_${isa}_f${bits})
  add_library(${target} OBJECT ${ARGN})
  target_compile_definitions(${target} PRIVATE TP_ISA=${isa} TP_REAL=${bits} ${ISA_ALONE} TP_NO_SITE
    _POSIX_C_SOURCE=200809L $<$<STREQUAL:${isa},base>:TP_BASELINE>
    $<$<STREQUAL:${isa}${bits},${ISA_FIRST}32>:TP_ISA_DISPATCH>)
  target_compile_options(${target} PRIVATE ${KERNEL_FLAGS} ${ISA_${isa}_FLAGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  tp_warnings(${target})
  target_compile_options(${target} PRIVATE ${TP_KERNEL_SANITIZE})
  if(TAPEGRAD_FUZZ)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
endfunction()

set(TYPED_SOURCES "")
foreach(file ${KERNEL_SOURCES})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} typed REGEX "kit/real.h" LIMIT_COUNT 1)
  if(typed)
    list(APPEND TYPED_SOURCES ${file})
  endif()
endforeach()
set(KERNEL_OBJECTS "")
foreach(isa ${ISAS})
  tp_kernels(tapegrad ${isa} 32 ${KERNEL_SOURCES})
  tp_kernels(tapegrad ${isa} 64 ${TYPED_SOURCES})
  list(APPEND KERNEL_OBJECTS $<TARGET_OBJECTS:tapegrad_${isa}_f32>
    $<TARGET_OBJECTS:tapegrad_${isa}_f64>)
endforeach()
