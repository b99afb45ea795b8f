# What the appliance needs on PyPy, as its makers publish it: by name and hash, for each PyPy and system.
#
# A program of the appliance that needs more gets a further entry here, also for what that needs in turn; `any` in place
# of a PyPy's tag, and of a system's name, is a wheel of pure Python. `pip download --no-deps --only-binary :all:
# --implementation pp --python-version 311 --abi pypy311_pp73 --platform manylinux_2_28_x86_64 pyzmq` fetches one;
# `nix hash file` says the hash.
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

  pureFor = python: pname: version: hash: {
    any.any = {
      inherit
        pname
        version
        python
        hash
        ;
      format = "wheel";
      dist = python;
      abi = "none";
      platform = "any";
    };
  };
  pure = pureFor "py3";
in
{
  # Of scaler_ui, with what these need in turn: the newest for Python 3.9.
  anyio = pure "anyio" "4.12.1" "sha256-1AWCiIT8FAqoCjxme4vu0nfx3+3sQroDG9asPbYGq2w=";
  click = pure "click" "8.1.8" "sha256-Y8Eyu77QFXigZxKi0fSXu2LZwcDTKbeQOoZiKAJyY7I=";
  exceptiongroup = pure "exceptiongroup" "1.3.1" "sha256-p6OaO9J2eB6YOUmH06VwHQxO3/tjO7elFEV3+Cx3NZg=";
  h11 = pure "h11" "0.16.0" "sha256-Y8+LvnUi3jv2WTL9odnCdyBk/7Pa5i1Vky2lSzHLbIY=";
  idna = pure "idna" "3.20" "sha256-q3rnEil0VTNw8L25GeGpYLLNG8HvAnZBbYltuBwUWCw=";
  prometheus-client =
    pure "prometheus_client" "0.26.0"
      "sha256-+pPQZzeqArrNBXlHaFCLuX0vvuKMs7ygTqrpLwypU9Y=";
  starlette = pure "starlette" "0.49.3" "sha256-tXm5lxX9wpgM+IyOyW078c4W9agFGnwrhO+bHN7K6i8=";
  typing-extensions =
    pure "typing_extensions" "4.16.0"
      "sha256-SByqSBN06BPBsXatoU6X8fZ6RTnOnP6z81DXjWNwwug=";
  uvicorn = pure "uvicorn" "0.39.0" "sha256-e+7CG9JpNWKzhihbGIp5Y7BoU8DQBjArPkz+2VDJkpo=";

  # Of scaler_top, likewise.
  blessed = pure "blessed" "1.52.0" "sha256-GTb0IfP+sTADWkYp5kd9FDLjOyZ0qyuYQSksdNR56sI=";
  jinxed = pureFor "py2.py3" "jinxed" "2.1.0" "sha256-Q7gC0Ytw5AXUEPtm6yg30RAefl6pIuZmUHu0PzTRHQk=";
  wcwidth = pure "wcwidth" "0.9.4" "sha256-kB6s5tLdJeu5F9DOXbGOXFN+FQTJBc8y8NAGwSCYsF0=";

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
