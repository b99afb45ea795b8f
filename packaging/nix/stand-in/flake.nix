# Just so much of nixpkgs as the flake at the top of the tree asks for, made from the programs of this host.
#
# host.json beside this file says where those programs are; see README.md for what this proves and what it does not.
{
  outputs =
    { self }:
    let
      host = builtins.fromJSON (builtins.readFile ./host.json);

      lib = {
        genAttrs =
          names: make:
          builtins.listToAttrs (
            map (name: {
              inherit name;
              value = make name;
            }) names
          );
        concatStrings = builtins.concatStringsSep "";
        mapAttrsToList = make: set: map (name: make name set.${name}) (builtins.attrNames set);
        makeLibraryPath = packages: builtins.concatStringsSep ":" (map (package: "${package}/lib") packages);
      };

      packagesFor =
        system:
        let
          # What nixpkgs has as a package and the host has as a program on its PATH.
          ofHost = name: runCommand name { } "mkdir $out";

          runCommand =
            name: attributes: script:
            derivation (
              removeAttrs attributes [ "meta" ]
              // {
                inherit name system;
                builder = "/bin/sh";
                PATH = host.path;
                args = [
                  "-euc"
                  "for input in \${nativeBuildInputs:-}; do PATH=$input/bin:$PATH; done\n${script}"
                ];
              }
            );

          writeText = name: text: builtins.toFile name text;

          pythonPackages = {
            # Of a fixed output, which Nix compares with the hash; the file was fetched before.
            fetchPypi =
              {
                pname,
                version,
                format,
                dist,
                python,
                abi,
                platform,
                hash,
              }:
              let
                file = "${pname}-${version}-${python}-${abi}-${platform}.whl";
              in
              derivation {
                inherit system;
                name = file;
                builder = "/bin/sh";
                PATH = host.path;
                args = [
                  "-euc"
                  "cp ${host.wheels}/${file} $out"
                ];
                outputHash = hash;
                outputHashMode = "flat";
                outputHashAlgo = "sha256";
              };

            # Built by the host's pip and hatchling.
            buildPythonPackage =
              {
                pname,
                version,
                src,
                dependencies,
                pyproject,
                build-system,
                doCheck,
              }:
              runCommand "${pname}-${version}" { } ''
                cp -r ${src} source
                chmod -R u+w source
                export HOME=$TMPDIR
                ${host.python} -m pip install -q --no-index --no-deps --no-build-isolation --no-cache-dir \
                  --disable-pip-version-check --ignore-installed --prefix $out ./source
              ''
              // {
                inherit dependencies;
              };
          }
          // lib.genAttrs [
            "blessed"
            "cloudpickle"
            "exceptiongroup"
            "hatchling"
            "hypothesis"
            "prometheus-client"
            "psutil"
            "pynacl"
            "pytest"
            "pytest-timeout"
            "pyzmq"
            "starlette"
            "tomli"
            "uvicorn"
          ] ofHost;

          withDependencies =
            packages: builtins.concatMap (each: [ each ] ++ withDependencies (each.dependencies or [ ])) packages;
        in
        rec {
          inherit lib runCommand writeText;
          stdenv.hostPlatform.system = system;
          stdenv.cc.cc = ofHost "gcc";

          # Where the host has none, one that does nothing: a host's libraries are where a wheel looks for them.
          patchelf =
            if host.hasPatchelf then
              ofHost "patchelf"
            else
              runCommand "patchelf" { } ''
                mkdir -p $out/bin
                printf '#!/bin/sh\n' > $out/bin/patchelf
                chmod +x $out/bin/patchelf
              '';
          capnproto = ofHost "capnproto";
          git = ofHost "git";
          gnumake = ofHost "gnumake";
          nixfmt-rfc-style = ofHost "nixfmt";

          pythonInterpreters.pypy311_prebuilt = {
            interpreter = host.pypy;
            pythonVersion = host.pypyVersion;
          };

          python3 = ofHost "python3" // {
            interpreter = host.python;
            pkgs = pythonPackages;
            withPackages =
              choose:
              let
                environment = runCommand "python3-env" { packages = withDependencies (choose pythonPackages); } ''
                  mkdir -p $out/bin
                  path=
                  for package in $packages; do
                    for folder in $package/lib/python*/site-packages; do
                      [ ! -d $folder ] || path=$path$folder:
                    done
                  done
                  printf '#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n' $path ${host.python} > $out/bin/python3
                  for package in $packages; do
                    for program in $package/bin/*; do
                      [ ! -f $program ] || printf '#!/bin/sh\nexec %s/bin/python3 %s "$@"\n' $out $program \
                        > $out/bin/$(basename $program)
                    done
                  done
                  chmod +x $out/bin/*
                '';
              in
              environment // { interpreter = "${environment}/bin/python3"; };
          };

          mkShell = attributes: runCommand "shell" attributes "mkdir $out";

          # Its configuration, and nothing of what is in it.
          dockerTools.buildLayeredImage =
            {
              name,
              tag,
              contents,
              extraCommands,
              config,
            }:
            runCommand "${name}-${tag}.json"
              {
                inherit contents extraCommands;
                config = builtins.toJSON config;
              }
              ''
                printf '%s\n' "$config" > $out
              '';
        };
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] packagesFor;
    };
}
