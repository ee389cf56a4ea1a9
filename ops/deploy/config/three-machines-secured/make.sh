#!/bin/sh
# Makes what three secured machines need: an authority, certificates, secrets and settings.
#
#   make.sh [--here] FOLDER HOST1 HOST2 HOST3
#
# FOLDER/1, 2 and 3 become /etc/quire on the three machines; FOLDER itself is the operator's, and
# FOLDER/authority, with the key of the authority, stays with whoever may make certificates.
# With --here the settings name the files where they are now, for three addresses of one machine.
set -eu
umask 077
here=false
if [ "$1" = --here ]; then
    here=true
    shift
fi
if [ $# -ne 4 ]; then
    echo "usage: make.sh [--here] FOLDER HOST1 HOST2 HOST3" >&2
    exit 2
fi
samples=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir "$1"
folder=$(CDPATH= cd -- "$1" && pwd)
shift

secret() {
    head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'
}

# filled SAMPLE ETC DATA: a sample with the hosts of these machines and the folders of this one.
filled() {
    sed -e "s|q1\.example|$host1|g; s|q2\.example|$host2|g; s|q3\.example|$host3|g" \
        -e "s|/etc/quire|$2|g; s|/var/lib|$3|g" "$samples/$1"
}

host1=$1 host2=$2 host3=$3
admin_token=$(secret) look_token=$(secret) brokers=$(secret) zookeeper=$(secret)
number=0
for host in "$@"; do
    number=$((number + 1))
    etc=/etc/quire data=/var/lib machine=$folder/$number
    if $here; then
        etc=$machine data=$machine/data
        mkdir -p "$data/quire" "$data/zookeeper"
        echo $number > "$data/zookeeper/myid"
    fi
    mkdir -p "$machine"
    quire certificates make "node$number" --host "$host" --dir "$folder/authority"
    cp "$folder/authority/ca.pem" "$machine/ca.pem"
    cp "$folder/authority/node$number.pem" "$machine/node.pem"
    cp "$folder/authority/node$number.key" "$machine/node.key"
    cat "$machine/node.key" "$machine/node.pem" > "$machine/keys.pem"
    for file in broker.toml bookie.toml zoo.cfg; do
        filled $file "$etc" "$data" > "$machine/$file"
    done
    echo "secureClientPortAddress=$host" >> "$machine/zoo.cfg"
    filled "node-$number.env" "$etc" "$data" > "$machine/node.env"
    cat >> "$machine/node.env" <<END
QUIRE_BROKER_ADMIN_TOKEN=$admin_token
QUIRE_BROKER_ADMIN_READ_TOKEN=$look_token
QUIRE_BROKER_SECURITY_INTER_BROKER_PASSWORD=$brokers
QUIRE_BROKER_CLUSTER_SECURITY_ZOOKEEPER_PASSWORD=$zookeeper
QUIRE_BOOKIE_ADMIN_TOKEN=$admin_token
QUIRE_BOOKIE_ADMIN_READ_TOKEN=$look_token
QUIRE_BOOKIE_CLUSTER_SECURITY_ZOOKEEPER_PASSWORD=$zookeeper
END
done

# properties USER PASSWORD: how a client of that user reaches the brokers.
properties() {
    cat > "$folder/$1.properties" <<END
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=$1
sasl.password=$2
ssl.ca.location=$folder/ca.pem
END
}

quire certificates make operator --host localhost --dir "$folder/authority"
cp "$folder/authority/ca.pem" "$folder/authority/operator.pem" "$folder/authority/operator.key" "$folder"
filled cluster.toml "$folder" "$folder" > "$folder/cluster.toml"
echo "zookeeper_password = \"$zookeeper\"" >> "$folder/cluster.toml"
echo "$look_token" > "$folder/metrics.token"
properties brokers "$brokers"
for user in admin anna; do
    password=$(secret)
    echo "$password" > "$folder/$user.password"
    properties "$user" "$password"
done
cat > "$folder/operator.env" <<END
export QUIRE_BOOTSTRAP=$host1:9092,$host2:9092,$host3:9092
export QUIRE_ZOOKEEPER=$host1:2181,$host2:2181,$host3:2181
export QUIRE_CLUSTER_CONFIG=$folder/cluster.toml
export QUIRE_CLIENT_CONFIG=$folder/admin.properties
export QUIRE_ADMIN_CA=$folder/ca.pem
export QUIRE_ADMIN_TOKEN=$admin_token
END
echo "Everything is in $folder. Keep $folder/authority to yourself."
