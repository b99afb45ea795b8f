# Scaler by Nix:
#
#   nix run .#scaler_scheduler -- tcp://127.0.0.1:2345     the scheduler, on PyPy
#   nix build .#image                                      the same as an OCI image
#   nix develop                                            what `make venv` and the tests need
#   nix flake check
#
# Programs, their dependencies and versions are read from the distributions' own pyproject.toml, so what the appliance
# adds there is here too. What each part does stands in packaging/nix/, with a README.
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
      forEachSystem =
        make: nixpkgs.lib.genAttrs systems (system: make system nixpkgs.legacyPackages.${system});

      projects = import ./packaging/nix/projects.nix;
      programs = builtins.attrNames projects.scaler-appliance.scripts;

      appliancesFor = pkgs: {
        pypy = import ./packaging/nix/appliance-on-pypy.nix {
          inherit pkgs projects;
          # The prebuilt one: nixpkgs' other PyPy takes hours to build where no cache has it.
          pypy = pkgs.pythonInterpreters.pypy311_prebuilt;
        };
        cpython = pkgs.python3.withPackages (ps: [
          (import ./packaging/nix/python-packages.nix projects ps).scaler-appliance
        ]);
      };
    in
    {
      packages = forEachSystem (
        system: pkgs:
        let
          appliances = appliancesFor pkgs;
        in
        nixpkgs.lib.genAttrs programs (_: appliances.pypy)
        // {
          default = appliances.pypy;
          scaler_scheduler-cpython = appliances.cpython;
          scaler-sdk = (import ./packaging/nix/python-packages.nix projects pkgs.python3.pkgs).scaler-sdk;
          image = import ./packaging/nix/image.nix {
            inherit pkgs projects;
            appliance = appliances.pypy;
          };
        }
      );

      apps = forEachSystem (
        system: pkgs:
        let
          appliances = appliancesFor pkgs;
          app = appliance: program: {
            type = "app";
            program = "${appliance}/bin/${program}";
          };
        in
        nixpkgs.lib.genAttrs programs (app appliances.pypy)
        // {
          default = app appliances.pypy "scaler_scheduler";
          scaler_scheduler-cpython = app appliances.cpython "scaler_scheduler";
        }
      );

      # For a Python environment of one's own: `python3.withPackages (ps: [ ps.scaler-sdk ])`.
      overlays.default = final: prev: {
        pythonPackagesExtensions = prev.pythonPackagesExtensions ++ [
          (pythonFinal: _: import ./packaging/nix/python-packages.nix projects pythonFinal)
        ];
      };

      checks = forEachSystem (
        system: pkgs:
        import ./packaging/nix/checks.nix {
          inherit pkgs projects programs;
          appliances = appliancesFor pkgs;
          image = self.packages.${system}.image;
        }
      );

      devShells = forEachSystem (
        system: pkgs: {
          default = pkgs.mkShell {
            packages = [
              pkgs.capnproto
              pkgs.git
              pkgs.gnumake
              pkgs.python3
            ];
            # Where the Makefile looks for PyPy.
            PYPY = pkgs.pythonInterpreters.pypy311_prebuilt.interpreter;
            # The wheels that `make venv` installs look for the C++ library where other systems have it.
            LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath [ pkgs.stdenv.cc.cc ];
          };
        }
      );

      formatter = forEachSystem (system: pkgs: pkgs.nixfmt-rfc-style);
    };
}
