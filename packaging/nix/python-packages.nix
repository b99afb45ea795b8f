# The distributions as packages of a Python package set: scaler-protocol, scaler-appliance, scaler-sdk.
projects: pythonPackages:
let
  make =
    name: project:
    pythonPackages.buildPythonPackage {
      pname = name;
      inherit (project) version;
      src = project.folder;
      pyproject = true;
      build-system = [ pythonPackages.hatchling ];
      dependencies = map (dependency: own.${dependency} or pythonPackages.${dependency}) project.dependencies;
      doCheck = false; # the tree's tests are run by `nix flake check`
    };
  own = builtins.mapAttrs make projects;
in
own
