#!/bin/sh
# Let web begin connections only to the ports in MGCLUST_WEB_PORTS of .env, and to DNS. Run this script as root after each boot,
# and after each change of MGCLUST_WEB_PORTS or MGCLUST_SUBNET.
set -eu
cd "$(dirname "$0")"
setting() {
    found=$(sed -n "s/^$1=//p" .env)
    echo "${found:-$2}"
}
subnet=$(setting MGCLUST_SUBNET 172.30.187.0/24)
ports=$(setting MGCLUST_WEB_PORTS 443)

iptables -N MGCLUST-WEB 2>/dev/null || iptables -F MGCLUST-WEB
iptables -A MGCLUST-WEB -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN
iptables -A MGCLUST-WEB -p tcp -m multiport --dports "$ports" -j RETURN
iptables -A MGCLUST-WEB -p udp --dport 53 -j RETURN
iptables -A MGCLUST-WEB -j DROP
iptables -C DOCKER-USER -s "$subnet" -j MGCLUST-WEB 2>/dev/null || iptables -I DOCKER-USER -s "$subnet" -j MGCLUST-WEB
