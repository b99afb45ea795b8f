# The appliance's programs on PyPy: its sources, the wheels of wheels.nix, and a script for each program.
#
# Nothing is built by nixpkgs' machinery for Python packages, which knows few that build for PyPy.
{
  pkgs,
  projects,
  pypy,
}:
let
  inherit (pkgs) lib;
  appliance = projects.scaler-appliance;
  system = pkgs.stdenv.hostPlatform.system;
  tag = "pp" + builtins.replaceStrings [ "." ] [ "" ] pypy.pythonVersion;

  wheels = import ./wheels.nix;
  wheelOf =
    name:
    let
      missing = throw "scaler: packaging/nix/wheels.nix has no wheel of ${name} for ${tag} on ${system}";
      forTag = (wheels.${name} or missing).${tag} or (wheels.${name}.any or missing);
    in
    pkgs.python3.pkgs.fetchPypi (forTag.${system} or (forTag.any or missing));
  # What the appliance names, and all else in wheels.nix, which these need in turn.
  named = builtins.filter (name: !(projects ? ${name})) appliance.dependenciesOnPyPy;
  foreign = named ++ builtins.filter (name: !(builtins.elem name named)) (builtins.attrNames wheels);

  script =
    program: entry:
    let
      parts = builtins.match "([^:]+):(.+)" entry;
    in
    pkgs.writeText program ''
      #!${pypy.interpreter}
      import sys

      sys.path.insert(0, "@out@/lib/scaler")

      from ${builtins.elemAt parts 0} import ${builtins.elemAt parts 1} as main

      sys.exit(main())
    '';
in
pkgs.runCommand "scaler-appliance-${appliance.version}"
  {
    nativeBuildInputs = [ pkgs.patchelf ];
    wheels = map wheelOf foreign;
    meta.mainProgram = "scaler_scheduler";
  }
  ''
    mkdir -p $out/lib/scaler $out/bin
    cp -r ${projects.scaler-protocol.source}/. ${appliance.source}/. $out/lib/scaler
    chmod -R u+w $out/lib/scaler
    for wheel in $wheels; do
      ${pypy.interpreter} -m zipfile -e $wheel $out/lib/scaler
    done
    # The ZeroMQ library that a wheel brings looks for C++'s where other systems have it.
    for library in $out/lib/scaler/*.libs/*.so*; do
      chmod u+w $library
      patchelf --add-rpath ${lib.makeLibraryPath [ pkgs.stdenv.cc.cc ]} $library
    done
    # All files of the store are of 1970: the bytecode must not be asked whether it is older than they are.
    ${pypy.interpreter} -m compileall -q --invalidation-mode unchecked-hash $out/lib/scaler
    ${lib.concatStrings (
      lib.mapAttrsToList (program: entry: ''
        sed "s|@out@|$out|" ${script program entry} > $out/bin/${program}
        chmod +x $out/bin/${program}
      '') appliance.scripts
    )}
  ''
