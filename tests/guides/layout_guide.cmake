# Builds the layout of docs/adding-a-data-layout.md, the first code block there, into a copy of the
# data library: nothing else is needed to find, list and read it (layout_guide.c).
set(GUIDE ${PROJECT_SOURCE_DIR}/docs/adding-a-data-layout.md)
set(GUIDE_DIR ${CMAKE_CURRENT_BINARY_DIR}/layout_guide)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GUIDE})
file(MAKE_DIRECTORY ${GUIDE_DIR})
execute_process(COMMAND awk "/^```c$/ { on = ++n == 1; next } /^```$/ { on = 0 } on" ${GUIDE}
  OUTPUT_FILE ${GUIDE_DIR}/set_flat.c COMMAND_ERROR_IS_FATAL ANY)
set(guide_sources ${DATA_SOURCES} ${GUIDE_DIR}/set_flat.c)
tp_layouts(${GUIDE_DIR}/include ${guide_sources})
add_executable(layout_guide guides/layout_guide.c support/folder.c ${guide_sources})
target_compile_definitions(layout_guide PRIVATE TP_NO_SITE TP_ISA_DISPATCH _POSIX_C_SOURCE=200809L)
if(TARGET tapegrad_data_avx2)
  target_sources(layout_guide PRIVATE $<TARGET_OBJECTS:tapegrad_data_avx2>)
endif()
target_compile_options(layout_guide PRIVATE -ffp-contract=off)
target_include_directories(layout_guide BEFORE PRIVATE ${GUIDE_DIR}/include
  ${PROJECT_SOURCE_DIR}/data ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(layout_guide PRIVATE tapegrad PkgConfig::LIBARCHIVE PkgConfig::JANSSON
  PkgConfig::JPEG PkgConfig::PNG PkgConfig::CRITERION Threads::Threads)
tp_warnings(layout_guide)
add_test(NAME layout_guide COMMAND layout_guide --jobs 1)
