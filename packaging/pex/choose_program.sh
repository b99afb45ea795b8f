# The name of this file, or of a link to it, is the program that is meant, with or without .pex.
scaler_name="${0##*/}"
scaler_name="${scaler_name%.pex}"
case "${scaler_name}" in
    scaler_scheduler) ;; # the default, which starts quicker so
    @PROGRAMS@) export PEX_SCRIPT="${PEX_SCRIPT:-${scaler_name}}" ;;
esac
# What the scheduler would start PyPy once more for.
export PYPY_GC_NURSERY="${PYPY_GC_NURSERY:-@NURSERY@}"
