# What the distributions say of themselves: folder, version, dependencies and programs, read from their own files.
let
  # The version is written once, in a module.
  versionIn =
    file: builtins.head (builtins.match ".*__version__ = \"([^\"]+)\".*" (builtins.readFile file));

  # "psutil>=5.9; platform_python_implementation == 'CPython'" is about psutil.
  nameOf = requirement: builtins.head (builtins.match "([A-Za-z0-9._-]+).*" requirement);
  isOnlyForCPython = requirement: builtins.match ".*platform_python_implementation *== *.CPython.*" requirement != null;

  read =
    folder:
    let
      pyproject = builtins.fromTOML (builtins.readFile (folder + "/pyproject.toml"));
      optional = pyproject.project.optional-dependencies or { };
      # The programs are all there, so what only some of them need is, too.
      requirements = pyproject.project.dependencies ++ (optional.top or [ ]) ++ (optional.ui or [ ]);
    in
    {
      inherit folder;
      source = folder + "/src";
      version = versionIn (folder + "/${pyproject.tool.hatch.version.path}");
      scripts = pyproject.project.scripts or { };
      dependencies = map nameOf requirements;
      dependenciesOnPyPy = map nameOf (builtins.filter (each: !isOnlyForCPython each) requirements);
    };
in
{
  scaler-protocol = read ../../protocol-spec/python;
  scaler-appliance = read ../../appliance;
  scaler-sdk = read ../../sdk;
}
