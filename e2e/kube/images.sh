#!/bin/bash
# Makes ROOT/images/rig.tar: pause, busybox, agnhost, toolbox, nginx, coredns, from this machine's Debian packages and
# ROOT/bin; seed.sh then
# imports all of ROOT/images/*.tar into ROOT/seed, a containerd root that every node starts from (hard links). usage: images.sh
# Debian packages: see apt-packages in README.md
set -euo pipefail
# /bin/sh is bash in the images with tools: Debian's busybox sh would run its own applets (ip, nc, ping) instead of the real ones;
# wget is GNU's: busybox 1.35's crashes with -T, which the e2e tests use
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
mkdir -p "$RIG_ROOT/images" "$RIG_ROOT/tmp"; T=$RIG_ROOT/tmp
gcc -Os -s -static -o "$T/pause" "$RIG/pause.c"
E=registry.k8s.io/e2e-test-images
PASSWD='root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nwww-data:x:33:33::/:/bin/false\nuser-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n'
GROUP='root:x:0:\nnobody:x:65534:\nwww-data:x:33:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n'
NSS='hosts: files dns\npasswd: files\ngroup: files\n'
BB=$(busybox --list | sed 's/.*/"bin\/&": "busybox"/' | paste -sd, | sed 's#"bin/busybox": "busybox",\?##')
XT=/usr/lib/x86_64-linux-gnu/xtables
cat > "$T/spec.json" <<END
{"layers": {
  "pause": {"files": {"pause": "$T/pause"}},
  "busybox": {"files": {"bin/busybox": "$(command -v busybox)"}, "links": {$BB, "lib": "usr/lib", "sbin": "bin"},
    "dirs": {"root": "700", "proc": "755", "sys": "755", "dev": "755", "run": "755", "var/tmp": "1777", "home": "755"},
    "text": {"etc/passwd": "$PASSWD", "etc/group": "$GROUP", "etc/nsswitch.conf": "$NSS"}},
  "tools": {"bins": ["bash", "curl", "socat", "tcpdump", "/usr/sbin/ip", "bridge", "tc", "ss", "iperf", "iperf3", "dig", "nft", "ethtool",
      "conntrack", "ping", "arping", "tracepath", "/usr/bin/nc.openbsd", "/usr/sbin/xtables-nft-multi", "/usr/sbin/ipset", "jq", "getent", "wget"],
    "files": {"usr/lib/x86_64-linux-gnu/xtables": "$XT", "etc/protocols": "/etc/protocols", "etc/services": "/etc/services"},
    "links": {"usr/bin/nc": "nc.openbsd", "bin/nc": "/usr/bin/nc.openbsd", "bin/ping": "/usr/bin/ping", "bin/ping6": "/usr/bin/ping", "bin/ip": "/usr/bin/ip", "bin/tc": "/usr/bin/tc", "bin/bash": "/usr/bin/bash", "bin/sh": "/usr/bin/bash",
      "bin/arping": "/usr/bin/arping", "bin/wget": "/usr/bin/wget", "usr/bin/iptables": "xtables-nft-multi", "usr/bin/ip6tables": "xtables-nft-multi", "usr/bin/iptables-save": "xtables-nft-multi",
      "usr/bin/ip6tables-save": "xtables-nft-multi", "usr/bin/iptables-restore": "xtables-nft-multi", "usr/bin/ip6tables-restore": "xtables-nft-multi"}},
  "agnhost": {"files": {"agnhost": "$BIN/agnhost", "localhost.crt": "$(go -C "$RIG/hyperkube" list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter/localhost.crt",
      "localhost.key": "$(go -C "$RIG/hyperkube" list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter/localhost.key"},
    "links": {"agnhost-2": "agnhost"}, "dirs": {"uploads": "755", "home/user-defined-in-image": "755"}},
  "nginx": {"bins": ["nginx"], "links": {"usr/sbin/nginx": "/usr/bin/nginx"}, "dirs": {"var/log/nginx": "755", "var/lib/nginx": "755", "usr/share/nginx/html": "755"},
    "text": {"usr/share/nginx/html/index.html": "<html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1></body></html>\n",
      "etc/nginx/nginx.conf": "user root; daemon off; worker_processes 1; pid /run/nginx.pid; error_log /dev/stderr; events { worker_connections 512; } http { access_log /dev/stdout; server { listen 80; listen [::]:80; root /usr/share/nginx/html; } }\n"}},
  "hostnet": {"text": {"etc/nginx/nginx.conf": "user root; daemon off; worker_processes 1; pid /run/nginx.pid; error_log /dev/stderr; events { worker_connections 512; } http { server { listen 12003; listen [::]:12003; root /usr/share/nginx/html; } }\n"}},
  "boom": {"files": {"regression-issue-74839": "$BIN/regression-issue-74839"}},
  "coredns": {"files": {"coredns": "$BIN/coredns"}}},
 "images": [
  {"names": ["registry.k8s.io/pause:$PAUSE_TAG"], "layers": ["pause"], "config": {"Entrypoint": ["/pause"], "User": "65535:65535", "Env": ["PATH=/"]}},
  {"names": ["$E/busybox:$BUSYBOX_TAG", "$E/busybox:$CRITEST_BUSYBOX_TAG", "docker.io/library/busybox:rig"], "layers": ["busybox"], "config": {"Cmd": ["sh"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}},
  {"names": ["docker.io/library/toolbox:rig", "$E/glibc-dns-testing:$GLIBC_DNS_TAG", "registry.k8s.io/build-image/distroless-iptables:$DISTROLESS_IPTABLES_TAG"], "layers": ["busybox", "tools"], "config": {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}},
  {"names": ["$E/agnhost:$AGNHOST_TAG", "$E/agnhost:$AGNHOST_PREV_TAG"], "layers": ["busybox", "tools", "coredns", "agnhost"], "config": {"Entrypoint": ["/agnhost"], "Cmd": ["pause"],
      "ExposedPorts": {"80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {}}, "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}},
  {"names": ["$E/nginx:$NGINX_TAG", "$E/nginx:$NGINX_NEW_TAG", "$E/nginx:$CRITEST_NGINX_TAG"], "layers": ["busybox", "nginx"], "config": {"Cmd": ["nginx"], "ExposedPorts": {"80/tcp": {}}, "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}},
  {"names": ["gcr.io/k8s-staging-cri-tools/hostnet-nginx-amd64:latest"], "layers": ["busybox", "nginx", "hostnet"], "config": {"Cmd": ["nginx"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}},
  {"names": ["$E/regression-issue-74839:$BOOM_TAG"], "layers": ["boom"], "config": {"Entrypoint": ["/regression-issue-74839"], "Env": ["PATH=/"]}},
  {"names": ["registry.k8s.io/coredns/coredns:$COREDNS_TAG"], "layers": ["coredns"], "config": {"Entrypoint": ["/coredns"], "Env": ["PATH=/"]}}
]}
END
python3 "$RIG/mkimages.py" "$RIG_ROOT/images/rig.tar" "$T/spec.json"
rm -rf "$T/spec.json" "$T/pause"
"$RIG/seed.sh"
