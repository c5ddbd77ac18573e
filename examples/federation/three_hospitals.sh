#!/bin/sh
# Three hospitals on one computer, with the commands that each would type on its own.
#
#   examples/federation/three_hospitals.sh FOLDER
#
# makes FOLDER with a consortium and a kit for each hospital. Then, in four terminals:
#   anamorph site start FOLDER/london/kit --data SCANS --policy POLICY     (and paris, and rome)
#   anamorph federation fit FOLDER/consortium/coordinator -o shared.safetensors -k 4
set -eu
folder=${1:?give a new folder}
hospitals="london paris rome"
mkdir "$folder"
cd "$folder"

# Whoever runs the coordinator founds the consortium.
cat > consortium.yml <<YAML
name: three-hospitals
server: {host: localhost, port: 8002}
sites: [london, paris, rome]
YAML
anamorph federation provision consortium.yml -o consortium

# Each hospital makes its own key, and sends a request.
for name in $hospitals; do
    anamorph site join "$name/kit" --name "$name" | tee "$name.said"
done

# The coordinator signs the requests, and sends members.json to all.
anamorph federation sign consortium london/kit/london.csr paris/kit/paris.csr rome/kit/rome.csr

# Each hospital takes it over, and accepts the others by what they read out over the telephone.
for name in $hospitals; do
    anamorph site update "$name/kit" consortium/members.json
    for other in $hospitals; do
        [ "$other" = "$name" ] && continue
        read_out=$(sed -n 's/^Read this fingerprint to the other sites: //p' "$other.said")
        anamorph site accept "$name/kit" "$other" "$read_out"
    done
    anamorph site doctor "$name/kit"
done
