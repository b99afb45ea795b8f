# What the appliance needs on PyPy, as its makers publish it: by name and hash, for each PyPy and system.
#
# A program of the appliance that needs more gets a further entry here; `any` in place of a PyPy's tag, and of a system's
# name, is a wheel of pure Python. `pip download --no-deps --only-binary :all: --implementation pp --python-version 311
# --abi pypy311_pp73 --platform manylinux_2_28_x86_64 pyzmq` fetches one; `nix hash file` says the hash.
#
# pyzmq 27.2 is the last with wheels for the interface of PyPy 7.3 for Python 3.11, `pypy311_pp73`: those of 27.3 are for
# PyPy 8 (`pypy311_pp80`), which nixpkgs 25.05 does not have.
let
  # The arguments of nixpkgs' fetchPypi.
  pyzmq = python: abi: platform: hash: {
    pname = "pyzmq";
    version = "27.2.0";
    format = "wheel";
    dist = python;
    inherit
      python
      abi
      platform
      hash
      ;
  };
in
{
  pyzmq.pp311 = {
    x86_64-linux =
      pyzmq "pp311" "pypy311_pp73" "manylinux_2_26_x86_64.manylinux_2_28_x86_64"
        "sha256-9cbYdE0QteHq3ZCnxY+FRqz2v2gO5GP35q2gmtbJ+AI=";
    aarch64-linux =
      pyzmq "pp311" "pypy311_pp73" "manylinux_2_26_aarch64.manylinux_2_28_aarch64"
        "sha256-Z5tbHd4yapIeosnsH56jEVv+G0c1d5u8brBHOg7ZP3E=";
  };
  pyzmq.pp39 = {
    x86_64-linux =
      pyzmq "pp39" "pypy39_pp73" "manylinux2014_x86_64.manylinux_2_17_x86_64"
        "sha256-AQ23Sh3WfHzYuLMJFjVXNdt9YzoHBRC7NOQatnmrLA4=";
    aarch64-linux =
      pyzmq "pp39" "pypy39_pp73" "manylinux_2_26_aarch64.manylinux_2_28_aarch64"
        "sha256-mrcu53sxPQZYRHIEyCAfmzFRRukjtIxW6n29AF1GSpE=";
  };
  # PyPy before 3.11 does not read TOML by itself.
  tomli.any.any = {
    pname = "tomli";
    version = "2.5.0";
    format = "wheel";
    dist = "py3";
    python = "py3";
    abi = "none";
    platform = "any";
    hash = "sha256-Mqe3msV6LoNnDOMpzPZ1eYvFoglHg6Y2doZrcFA/Lis=";
  };
}
