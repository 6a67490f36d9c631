//! nginx and HAProxy as pass-throughs, where they are installed.

use std::{fs, process::Command};

use crate::{
    cli::Variant,
    common::Result,
    fleet::{Fleet, Subject},
    process::{self, Ending, Process},
};

pub(crate) fn nginx(fleet: &Fleet) -> Result<Subject> {
    let (name, address) = (Variant::Nginx.name(), process::free_address());
    let directory = fleet.directory(&name)?;
    let (threads, upstream, at) = (fleet.options.threads, fleet.upstream, directory.display());
    let conf = directory.join("nginx.conf");
    let text = format!(
        "daemon off; worker_processes {threads}; pid {at}/pid; error_log stderr; worker_rlimit_nofile 65536;\n\
         events {{ worker_connections 30000; }}\n\
         http {{\n\
           access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
           uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi; client_body_buffer_size 256k; client_max_body_size 32m;\n\
           keepalive_requests 1000000000; tcp_nodelay on;\n\
           upstream sim {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}\n\
           server {{ listen {address};\n\
             location / {{ proxy_pass http://sim; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; }} }}\n\
         }}\n"
    );
    fs::write(&conf, text)?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&conf).arg("-p").arg(&directory);
    let mut process = Process::start(&name, command, &fleet.cores.subject, Ending::Terminate, fleet.path())?;
    process.wait_listening(address)?;
    Ok(fleet.pass_through(&name, address, vec![process]))
}

pub(crate) fn haproxy(fleet: &Fleet) -> Result<Subject> {
    let (name, address) = (Variant::Haproxy.name(), process::free_address());
    let conf = fleet.directory(&name)?.join("haproxy.cfg");
    let (threads, upstream) = (fleet.options.threads, fleet.upstream);
    let text = format!(
        "global\n  nbthread {threads}\n  maxconn 30000\n\
         defaults\n  mode http\n  timeout connect 3s\n  timeout client 120s\n  timeout server 120s\n  http-reuse always\n\
         frontend all\n  bind {address}\n  default_backend sim\n\
         backend sim\n  server sim {upstream}\n"
    );
    fs::write(&conf, text)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&conf);
    let mut process = Process::start(&name, command, &fleet.cores.subject, Ending::Terminate, fleet.path())?;
    process.wait_listening(address)?;
    Ok(fleet.pass_through(&name, address, vec![process]))
}
