# Checks that the steps of docs/adding-an-op.md suffice: its op is a file, a CPU file and a
# prototype, and a unary function is one row of tensor/geometry/functions.h and a prototype
# (op_guide.c).
set(GUIDE ${PROJECT_SOURCE_DIR}/docs/adding-an-op.md)
set(FUNCTIONS ${PROJECT_SOURCE_DIR}/tensor/geometry/functions.h)
set(HEADER ${PROJECT_SOURCE_DIR}/include/tapegrad/ops/elementwise.h)
set(GUIDE_DIR ${CMAKE_CURRENT_BINARY_DIR}/op_guide)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GUIDE} ${FUNCTIONS} ${HEADER})
file(MAKE_DIRECTORY ${GUIDE_DIR}/ops ${GUIDE_DIR}/cpu ${GUIDE_DIR}/include/tensor/geometry
  ${GUIDE_DIR}/include/tapegrad/ops)
execute_process(COMMAND awk -v dir=${GUIDE_DIR} "
  /^```c inverse$/ { on = dir (n++ ? \"/cpu\" : \"/ops\") \"/inverse.c\"; next }
  /^```$/ { on = \"\" } on { print > on }" ${GUIDE} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND awk "{ print }
  /^#define TP_UNARY\\(f\\)/ { print \"f(cube, \\\"x^3\\\", x, any, x * x * x, 3 * x * x) \\\\\" }"
  ${FUNCTIONS} OUTPUT_FILE ${GUIDE_DIR}/include/tensor/geometry/functions.h
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND awk "
  /^#ifndef TP_NO_SITE/ { print \"TP_API tp_tensor tp_inverse(tp_tape *T, tp_tensor x);\"
  print \"TP_API tp_tensor tp_cube(tp_tape *T, tp_tensor x);\" } { print }"
  ${HEADER} OUTPUT_FILE ${GUIDE_DIR}/include/tapegrad/ops/elementwise.h COMMAND_ERROR_IS_FATAL ANY)

add_executable(op_guide guides/op_guide.c ${GUIDE_DIR}/ops/inverse.c
  ${PROJECT_SOURCE_DIR}/autograd/ops/unary.c)
foreach(isa ${ISAS})
  foreach(bits 32 64)
    tp_kernels(guide ${isa} ${bits} ${GUIDE_DIR}/cpu/inverse.c ${PROJECT_SOURCE_DIR}/cpu/unary.c)
    target_include_directories(guide_${isa}_f${bits} BEFORE PRIVATE ${GUIDE_DIR}/include)
    target_sources(op_guide PRIVATE $<TARGET_OBJECTS:guide_${isa}_f${bits}>)
  endforeach()
endforeach()
target_compile_definitions(op_guide PRIVATE TP_NO_SITE _POSIX_C_SOURCE=200809L)
target_include_directories(op_guide BEFORE PRIVATE ${GUIDE_DIR}/include ${PROJECT_SOURCE_DIR})
target_link_libraries(op_guide PRIVATE tapegrad PkgConfig::CRITERION)
tp_warnings(op_guide)
add_test(NAME op_guide COMMAND op_guide --jobs 1)
