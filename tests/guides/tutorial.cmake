# Builds the programs of docs/tutorial.md and runs them as tests.
set(TUTORIAL ${PROJECT_SOURCE_DIR}/docs/tutorial.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TUTORIAL})
execute_process(COMMAND awk -v out=${CMAKE_CURRENT_BINARY_DIR}
  "/^```c$/ { n++; on = 1; file = out \"/tutorial_\" n \".c\"; printf \"\" > file; next }
   /^```$/ { on = 0 } on { print > file } END { print n }" ${TUTORIAL}
  OUTPUT_VARIABLE programs OUTPUT_STRIP_TRAILING_WHITESPACE)
foreach(i RANGE 1 ${programs})
  tp_program(tutorial_${i} ${CMAKE_CURRENT_BINARY_DIR}/tutorial_${i}.c)
  add_dependencies(quick_tests tutorial_${i})
  add_test(NAME tutorial_${i} COMMAND tutorial_${i} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endforeach()

# The program of docs/one-step.md.
set(STEP ${PROJECT_SOURCE_DIR}/docs/one-step.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${STEP})
execute_process(COMMAND awk "/^```c$/ { on = 1; next } /^```$/ { on = 0 } on" ${STEP}
  OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/one_step.c COMMAND_ERROR_IS_FATAL ANY)
tp_program(one_step ${CMAKE_CURRENT_BINARY_DIR}/one_step.c)
add_dependencies(quick_tests one_step)
add_test(NAME one_step COMMAND one_step)
set_tests_properties(one_step PROPERTIES PASS_REGULAR_EXPRESSION "200  0\\.0")

# The tutorial's pieces of examples/first_*, put together, are those programs.
foreach(program first_text first_image)
  add_test(NAME tutorial_${program} COMMAND ${CMAKE_COMMAND} -DTUTORIAL=${TUTORIAL}
    -DPROGRAM=${program} -DFILE=${PROJECT_SOURCE_DIR}/examples/${program}/${program}.c
    -P ${CMAKE_CURRENT_LIST_DIR}/tutorial_pieces.cmake)
endforeach()
