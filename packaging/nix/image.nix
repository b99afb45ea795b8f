# The scheduler on PyPy as an OCI image: `nix build .#image && docker load < result`.
{
  pkgs,
  projects,
  appliance,
}:
pkgs.dockerTools.buildLayeredImage {
  name = "scaler_scheduler";
  tag = projects.scaler-appliance.version;
  contents = [ appliance ];
  # For the socket on which status is published, and for objects that memory has no room for.
  extraCommands = "mkdir -m 1777 tmp";
  config = {
    Entrypoint = [ "${appliance}/bin/scaler_scheduler" ];
    Cmd = [ "tcp://0.0.0.0:2345" ];
    ExposedPorts."2345/tcp" = { };
    StopSignal = "SIGTERM";
    User = "65532:65532";
  };
}
