"""Memory that a trace does not show: context, library workspaces, communication buffers."""
