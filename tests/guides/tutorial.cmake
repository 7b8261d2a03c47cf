# The programs of docs/tutorial.md, cut out of it, are built and run as tests.
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

# Its pieces of examples/first_*, put together, are those programs.
foreach(program first_text first_image)
  add_test(NAME tutorial_${program} COMMAND ${CMAKE_COMMAND} -DTUTORIAL=${TUTORIAL}
    -DPROGRAM=${program} -DFILE=${PROJECT_SOURCE_DIR}/examples/${program}/${program}.c
    -P ${CMAKE_CURRENT_LIST_DIR}/tutorial_pieces.cmake)
endforeach()
