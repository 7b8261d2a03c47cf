# The plugins through which several processes train one model, one for each MPI that is found. Only
# they are linked with MPI; programs load the one of their launcher (train/peers/launch.c).
#
# Debian installs both MPIs side by side, with compilers called mpicc.openmpi and mpicc.mpich.
# Elsewhere mpicc is that of the one MPI, whose mpi.h tells which it is.

# Sets flags_var to what a compiler wrapper adds, and kind_var to openmpi or mpich ("": it does not
# work). Intel MPI and MVAPICH are of MPICH's kind.
function(tp_mpi_flags mpicc flags_var kind_var)
  set(kind "")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/has_mpi.c CONTENT "#include <mpi.h>\n")
  execute_process(COMMAND ${mpicc} -E -dM ${PROJECT_BINARY_DIR}/has_mpi.c OUTPUT_VARIABLE macros
    ERROR_QUIET)
  execute_process(COMMAND ${mpicc} -show OUTPUT_VARIABLE shown ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(macros MATCHES "define OPEN_MPI ")
    set(kind openmpi)
  elseif(macros MATCHES "define MPICH_")
    set(kind mpich)
  endif()
  separate_arguments(flags UNIX_COMMAND "${shown}")
  list(FILTER flags INCLUDE REGEX "^-([ILl]|Wl,)")
  set(${flags_var} "${flags}" PARENT_SCOPE)
  set(${kind_var} "${kind}" PARENT_SCOPE)
endfunction()

function(tp_mpi_plugin kind flags)
  set(name tapegrad_${kind})
  if(TARGET ${name})
    return()
  endif()
  add_library(${name} MODULE train/peers/mpi/mpi.c)
  set(headers ${flags})
  list(FILTER headers INCLUDE REGEX "^-I")
  list(TRANSFORM headers REPLACE "^-I" "")
  list(FILTER flags EXCLUDE REGEX "^-I")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${headers})
  target_link_libraries(${name} PRIVATE ${flags})
  tp_warnings(${name})
  add_dependencies(tapegrad_train ${name}) # so that whoever builds a program has it
  # Where ../lib leads from build/PRESET/bin, as from an installed program.
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

install(FILES train/peers/mpi/mpi.c DESTINATION ${CMAKE_INSTALL_DATADIR}/tapegrad)
set(TP_MPI_STATE "no MPI")
if(TAPEGRAD_MPI AND NOT CMAKE_CROSSCOMPILING)
  set(found "")
  foreach(wrapper mpicc.openmpi mpicc.mpich mpicc)
    find_program(TAPEGRAD_${wrapper} ${wrapper})
    mark_as_advanced(TAPEGRAD_${wrapper})
    if(TAPEGRAD_${wrapper})
      tp_mpi_flags(${TAPEGRAD_${wrapper}} flags kind)
      if(kind)
        tp_mpi_plugin(${kind} "${flags}")
        list(APPEND found ${kind})
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(JOIN found ", " names)
  if(found)
    set(TP_MPI_STATE "MPI: ${names}")
  elseif(NOT TAPEGRAD_MPI STREQUAL AUTO)
    message(FATAL_ERROR "No MPI found: apt-get install libopenmpi-dev, or -DTAPEGRAD_MPI=OFF")
  endif()
endif()
