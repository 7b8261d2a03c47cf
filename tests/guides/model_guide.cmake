# Builds the model of docs/adding-a-model.md beside the models library: tp-models shows it, and it
# passes the tests of the table and its own. The first code block there is the header, the one for
# tests is its test, and the others are the source.
set(GUIDE ${PROJECT_SOURCE_DIR}/docs/adding-a-model.md)
set(GUIDE_DIR ${CMAKE_CURRENT_BINARY_DIR}/model_guide)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GUIDE})
file(MAKE_DIRECTORY ${GUIDE_DIR}/include/tapegrad)
execute_process(COMMAND awk -v dir=${GUIDE_DIR} "
   /^```c$/ { n++; at = n; next } /^```c tests$/ { at = 0; test = 1; next }
   /^```$/ { at = -1; test = 0 } at > 0 || test { text[at] = text[at] $0 \"\\n\" }
   END { printf \"%s\", text[0] > (dir \"/test_patch_mlp.c\")
         printf \"%s\", text[1] > (dir \"/include/tapegrad/patch_mlp.h\")
         for (i = 2; i <= n; i++)
           printf \"%s%s\", (i > 2 ? \"\\n\" : \"\"), text[i] > (dir \"/patch_mlp.c\") }"
  ${GUIDE} COMMAND_ERROR_IS_FATAL ANY)

# The other models come from the library; its table is not linked because this object comes first.
tp_constants(${GUIDE_DIR}/model_table.c tp_model model.h tp__models ${MODEL_SOURCES}
  ${GUIDE_DIR}/patch_mlp.c)
add_library(guide_models OBJECT ${GUIDE_DIR}/patch_mlp.c ${GUIDE_DIR}/model_table.c)
target_compile_definitions(guide_models PRIVATE TP_NO_SITE _POSIX_C_SOURCE=200809L)
target_include_directories(guide_models PUBLIC ${GUIDE_DIR}/include
  PRIVATE ${PROJECT_SOURCE_DIR}/models)
target_link_libraries(guide_models PUBLIC tapegrad_models tapegrad)
tp_warnings(guide_models)

function(guide_program name)
  add_executable(${name} ${ARGN})
  target_compile_definitions(${name} PRIVATE _POSIX_C_SOURCE=200809L)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE guide_models tapegrad_detection tapegrad_data
    tapegrad_train tapegrad PkgConfig::JANSSON PkgConfig::CRITERION)
  tp_warnings(${name})
endfunction()
file(GLOB MODEL_VIEWS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/models/*.c)
guide_program(guide_tp_models ${PROJECT_SOURCE_DIR}/tools/tp-models.c
  ${PROJECT_SOURCE_DIR}/tools/print_text.c ${MODEL_VIEWS})
target_include_directories(guide_tp_models PRIVATE ${PROJECT_SOURCE_DIR}/tools)
target_link_libraries(guide_tp_models PRIVATE program_shared)
guide_program(guide_model_table models/test_model_table.c support/folder.c)
guide_program(guide_model_members models/test_model_members.c)
guide_program(guide_patch_mlp ${GUIDE_DIR}/test_patch_mlp.c support/models.c support/device.c
  support/amx.c)
target_include_directories(guide_patch_mlp PRIVATE ${PROJECT_SOURCE_DIR}) # of support/amx.c
guide_program(guide_op_macs ops/test_op_macs.c ${PROJECT_BINARY_DIR}/op_table.c)
add_test(NAME model_guide_shown COMMAND guide_tp_models --summary PatchMLP-S --fold)
set_tests_properties(model_guide_shown PROPERTIES
  PASS_REGULAR_EXPRESSION "PatchMLP-S is patch_mlp-small: patch MLP, 224 x 224.*10,139,752 +1.91 G")
add_test(NAME model_guide_table COMMAND guide_model_table --jobs 1)
add_test(NAME model_guide_members COMMAND guide_model_members --jobs 1)
add_test(NAME model_guide_own COMMAND guide_patch_mlp --jobs 1)
add_test(NAME model_guide_macs COMMAND guide_op_macs --jobs 1)
