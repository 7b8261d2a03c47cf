# Builds the programs of docs/guide/*.md, docs/tutorial.md and docs/one-step.md (blocks.awk) and
# runs them as tests, which compare what they print with the page.
function(tp_page file)
  get_filename_component(page ${file} NAME_WE)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${out}/cut)
  file(RELATIVE_PATH shown ${PROJECT_SOURCE_DIR} ${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  string(REPLACE "-" "_" page ${page})
  execute_process(COMMAND awk -v page=${page} -v out=${out}/cut -v shown=${shown}
    -f ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blocks.awk ${file}
    OUTPUT_VARIABLE programs COMMAND_ERROR_IS_FATAL ANY)
  foreach(program IN LISTS programs)
    string(REGEX REPLACE "^${page}_" "" example ${program})
    set(source ${PROJECT_SOURCE_DIR}/examples/${example}/${example}.c)
    if(EXISTS ${source}) # its pieces, put together, are that program
      add_test(NAME page_${program} COMMAND ${CMAKE_COMMAND} -DPAGE=${file} -DPROGRAM=${example}
        -DFILE=${source} -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/pieces.cmake)
      continue()
    endif()
    file(COPY_FILE ${out}/cut/${program}.c ${out}/${program}.c ONLY_IF_DIFFERENT)
    tp_program(page_${program} ${out}/${program}.c)
    add_dependencies(quick_tests page_${program})
    file(MAKE_DIRECTORY ${out}/${program})
    add_test(NAME page_${program} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:page_${program}>
      -DEXPECTED=${out}/cut/${program}.txt -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_page.cmake
      WORKING_DIRECTORY ${out}/${program})
  endforeach()
endfunction()

file(GLOB GUIDES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/guide/*.md)
foreach(guide ${GUIDES} ${PROJECT_SOURCE_DIR}/docs/tutorial.md
        ${PROJECT_SOURCE_DIR}/docs/one-step.md)
  tp_page(${guide})
endforeach()
