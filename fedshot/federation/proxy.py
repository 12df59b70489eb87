"""The proxy in front of the engine: clients reach the fleet path and nothing else.

The engine answers everything on one port, and its control path answers whoever can reach that port. So the engine
listens on the loopback interface alone, and nginx passes on only what clients need.
"""

import re
import socket

from fedshot.federation.layout import Federation, ServerFolder

FLEET = re.compile(r"/v1/fleet/(?!register-node$|unregister-node$)[a-z-]+")  # keys are registered by the operator alone
MOST_BODY = 2**25  # bytes of a request: the engine sends large things in pieces of 5 MiB

_TEMPLATE = """\
# Written by `fedshot federation init`. It is complete: `nginx -c THIS_FILE` needs no other file.
worker_processes auto;
pid "{processes}/nginx.pid";
error_log "{processes}/nginx.error.log" warn;
events {{ worker_connections 1024; }}

http {{
    map $status $refused {{ ~^2 0; default 1; }}
    access_log "{processes}/nginx.refused.log" combined if=$refused;
    server_tokens off;
    client_body_temp_path "{processes}/nginx-body";
    proxy_temp_path "{processes}/nginx-proxy";
    fastcgi_temp_path "{processes}/nginx-unused";
    uwsgi_temp_path "{processes}/nginx-unused";
    scgi_temp_path "{processes}/nginx-unused";
    limit_conn_zone $binary_remote_addr zone=address:10m;

    server {{
        listen {port} ssl;
{listen_v6}        ssl_certificate "{certificate}";
        ssl_certificate_key "{key}";
        ssl_protocols TLSv1.2 TLSv1.3;

        client_max_body_size {most_body};
        limit_conn address 64;

        # What a client needs: the engine's fleet path, with the path written anew so that nothing else slips through.
        location ~ "^{fleet}$" {{
            limit_except POST {{ deny all; }}
            proxy_pass https://127.0.0.1:{engine_port}$uri;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_read_timeout 300s;
            proxy_set_header Host $host;
            proxy_ssl_trusted_certificate "{authority}";
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
        }}
        location = /health {{
            limit_except GET {{ deny all; }}
            proxy_pass https://127.0.0.1:{engine_port}/health;
            proxy_ssl_trusted_certificate "{authority}";
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
        }}
        # Everything else, the control path above all: whoever reaches that can stop runs and let strangers in.
        location / {{ return 403; }}
    }}
}}
"""


def nginx_configuration(folder: ServerFolder, federation: Federation, ipv6: bool) -> str:
    """The configuration of nginx for a federation.

    Args:
        ipv6: whether this machine speaks IPv6; nginx does not start where it is told to listen and cannot.
    """
    return _TEMPLATE.format(
        processes=folder.processes,
        port=federation.port,
        listen_v6=f"        listen [::]:{federation.port} ssl;\n" if ipv6 else "",
        engine_port=federation.engine_port,
        certificate=folder.certificate,
        key=folder.key,
        authority=folder.authority[0],
        fleet=FLEET.pattern,
        most_body=MOST_BODY,
    )


def passes(method: str, path: str) -> bool:
    """Whether a request may pass the proxy; the same rule as in the configuration of nginx.

    >>> passes("POST", "/v1/fleet/pull-messages"), passes("GET", "/health")
    (True, True)
    >>> passes("POST", "/v1/control/start-run"), passes("POST", "/v1/fleet/../control/start-run")
    (False, False)
    """
    return (method, path) == ("GET", "/health") or (method == "POST" and FLEET.fullmatch(path) is not None)


def speaks_ipv6() -> bool:
    """Whether this machine has an IPv6 address, its own loopback one at least."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
