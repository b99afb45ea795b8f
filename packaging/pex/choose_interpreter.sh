# PyPy first. Each is tried: a name on the PATH may stand for nothing, or for an older Python.
find_python() {
    PATH="${PEX_PYTHON_PATH:+${PEX_PYTHON_PATH}:}${PATH:-}"
    for python in ${PEX_PYTHON:-} @INTERPRETERS@; do
        if "${python}" -c 'import sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
            command -v "${python}"
            return
        fi
    done
    echo >&2 "$0 needs PyPy or CPython, 3.9 or later, and finds neither on the PATH. PEX_PYTHON=/path/to/python names one."
    return 1
}
