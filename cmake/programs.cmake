# Installs programs with their manual pages and their completions for bash and zsh, which the built
# programs print themselves; not where the programs cannot run.
set(TP_MANUALS ${PROJECT_BINARY_DIR}/manuals)
set(TP_PRINT_MANUALS ${CMAKE_CURRENT_LIST_DIR}/print_manuals.cmake)
add_custom_target(manuals ALL)

function(tp_install_program name)
  if(BUILD_SHARED_LIBS)
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
  install(TARGETS ${name})
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()
  endif()
  add_custom_command(OUTPUT ${TP_MANUALS}/${name}.printed
    COMMAND ${CMAKE_COMMAND} "-DPROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:${name}>"
      -DNAME=${name} -DOUT=${TP_MANUALS}/${name} -P ${TP_PRINT_MANUALS}
    COMMAND ${CMAKE_COMMAND} -E touch ${TP_MANUALS}/${name}.printed
    DEPENDS ${name} ${TP_PRINT_MANUALS} COMMENT "Printing the manuals of ${name}" VERBATIM)
  add_custom_target(manuals_${name} DEPENDS ${TP_MANUALS}/${name}.printed)
  add_dependencies(manuals manuals_${name})
  install(DIRECTORY ${TP_MANUALS}/${name}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${TP_MANUALS}/${name}/bash/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(DIRECTORY ${TP_MANUALS}/${name}/zsh/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endfunction()
