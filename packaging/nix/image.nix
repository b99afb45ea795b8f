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
  # For the socket on which status is published, for objects that memory has no room for, and for keys.
  extraCommands = ''
    mkdir -m 1777 tmp
    mkdir -p var/lib
    mkdir -m 1777 var/lib/scaler
  '';
  config = {
    Entrypoint = [ "${appliance}/bin/scaler_scheduler" ];
    Cmd = [ "tcp://0.0.0.0:2345" ];
    # Where it makes its keys at its first start: a volume that stays keeps them.
    Env = [ "SCALER_KEY_DIRECTORY=/var/lib/scaler/keys" ];
    Volumes."/var/lib/scaler" = { };
    ExposedPorts."2345/tcp" = { };
    StopSignal = "SIGTERM";
    User = "65532:65532";
  };
}
