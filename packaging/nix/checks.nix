# What `nix flake check` builds: the programs start, the scheduler serves, the core's tests pass.
{
  pkgs,
  projects,
  programs,
  appliances,
  image,
}:
let
  packagesOf = import ./python-packages.nix projects;
  cluster = pkgs.python3.withPackages (ps: [ (packagesOf ps).scaler-sdk ]);
  serves =
    name: appliance:
    pkgs.runCommand "scaler-serves-${name}" { } ''
      export HOME=$TMPDIR
      ${cluster.interpreter} ${./serve.py} ${appliance}/bin/scaler_scheduler ${cluster}/bin/scaler_cluster
      touch $out
    '';
  forTests = pkgs.python3.withPackages (ps: [
    (packagesOf ps).scaler-appliance
    ps.hypothesis
    ps.pytest
    ps.pytest-timeout
  ]);
in
{
  inherit image;

  programs = pkgs.runCommand "scaler-programs-start" { } ''
    for program in ${toString programs}; do
      ${appliances.pypy}/bin/$program -h > /dev/null
    done
    ${appliances.pypy}/bin/scaler_scheduler --version > $out
    ${appliances.cpython}/bin/scaler_scheduler --version >> $out
    cat $out
  '';

  serves-on-pypy = serves "pypy" appliances.pypy;
  serves-on-cpython = serves "cpython" appliances.cpython;

  core-tests = pkgs.runCommand "scaler-core-tests" { } ''
    mkdir -p tree/appliance
    cp -r ${projects.scaler-appliance.folder}/tests tree/appliance
    cp -r ${../../protocol-spec} tree/protocol-spec
    cp ${../../pyproject.toml} tree/pyproject.toml
    chmod -R u+w tree
    cd tree
    ${forTests.interpreter} -m pytest -q -p no:cacheprovider -o testpaths=appliance appliance/tests/core
    touch $out
  '';
}
