# The scheduler and a development shell by Nix:
#
#   nix run .#scaler_scheduler -- tcp://127.0.0.1:2345
#   nix develop
#
# Each package is built from its own folder, with what its pyproject.toml asks for.
{
  description = "Scaler, a light-weight distributed task engine for Python";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.05";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forEachSystem = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});

      # The version is written once, in the package's __init__.py.
      versionIn =
        file:
        builtins.head (builtins.match ".*__version__ = \"([^\"]+)\".*" (builtins.readFile file));

      packagesFor = python: rec {
        scaler-protocol = python.pkgs.buildPythonPackage {
          pname = "scaler-protocol";
          version = versionIn ./protocol-spec/python/src/scaler_protocol/__init__.py;
          src = ./protocol-spec/python;
          pyproject = true;
          build-system = [ python.pkgs.hatchling ];
          pythonImportsCheck = [ "scaler_protocol" ];
        };

        scaler-appliance = python.pkgs.buildPythonPackage {
          pname = "scaler-appliance";
          version = versionIn ./appliance/src/scaler_appliance/__init__.py;
          src = ./appliance;
          pyproject = true;
          build-system = [ python.pkgs.hatchling ];
          dependencies = [
            scaler-protocol
            python.pkgs.pyzmq
          ];
          pythonImportsCheck = [ "scaler_appliance" ];
        };
      };
    in
    {
      packages = forEachSystem (pkgs: rec {
        scaler_scheduler = pkgs.python3.withPackages (_: [ (packagesFor pkgs.python3).scaler-appliance ]);
        default = scaler_scheduler;
      });

      apps = forEachSystem (pkgs: rec {
        scaler_scheduler = {
          type = "app";
          program = "${self.packages.${pkgs.system}.scaler_scheduler}/bin/scaler_scheduler";
        };
        default = scaler_scheduler;
      });

      devShells = forEachSystem (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.capnproto
            pkgs.gnumake
            pkgs.pypy3
            pkgs.python3
          ];
          # The wheels that `make venv` installs look for the C++ library where other systems have it.
          LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath [ pkgs.stdenv.cc.cc.lib ];
        };
      });
    };
}
