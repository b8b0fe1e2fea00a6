# A store that users share: one user's job reuses what another's measured, and a node that failed three users is a spare.
bats_require_minimum_version 1.5.0
load box
load job

setup_file() {
  printf '%s\n' 'n1 n2 200mbit' 'n1 n3 50mbit' 'n2 n3 50mbit' >"$BATS_FILE_TMPDIR/links"
  box_up_once --nodes 3 --links "$BATS_FILE_TMPDIR/links"
}
teardown_file() { box_down; }
setup() {
  make_job_home
  # shellcheck disable=SC2154 # make_job_home sets it
  sed -i 's/^measure = false/measure = true/' "$home/config.toml"
  bobs=${home%/*}/bob
  rm -rf "$bobs"/{runs,.local} "$bobs"/slurm-*.out
  cp "$home"/{corpus.txt,config.toml,job.sh} "$bobs/"
  chown -R --reference="$bobs" "$bobs"
  shared=$(mktemp -d "${home%/*}/shared.XXXXXX")
  chmod 755 "$shared"
  store=unix:$shared/socket
}
teardown() {
  # The service itself, too, where the box has started it.
  pgrep -f -- "--database $shared/profiles.db" | xargs -r kill
  wait "$service" || true
  wait_until 20 ended
  rm -rf "${shared:?}"
}

ended() { ! pgrep -f -- "--database $shared/profiles.db" >"$shared/left"; }

# serve: on ctl, where Slurm can be asked. Nodes of the box share a kernel, and so its socket.
serve() {
  box on ctl "$(box_value BOX_PREFIX)/sbin/adaptive-traind" --database "$shared/profiles.db" --socket "$shared/socket" 2>"$shared/log" 3>&- &
  service=$!
  wait_until 60 grep -q ' serves ' "$shared/log" || { cat "$shared/log"; return 1; }
}
# serve_by_network: on ctl, at a port, with the cluster's munge, and with Slurm's word for who has been where. Nodes of the box have a
# network each.
serve_by_network() {
  local program
  program=$(box_value BOX_PREFIX)/sbin/adaptive-traind
  box on ctl "$program" --database "$shared/profiles.db" --socket "$shared/socket" \
    --tcp ctl:6822 2>"$shared/log" 3>&- &
  service=$!
  wait_until 60 grep -q ' store_uid = 0' "$shared/log" || { cat "$shared/log"; return 1; }
  store=tcp:ctl:6822
  local folder
  for folder in "$home" "$bobs"; do
    mkdir -p "$folder/.config/adaptive-train"
    echo 'store_uid = 0' >"$folder/.config/adaptive-train/adaptive-train.toml"
    chown -R --reference="$folder" "$folder/.config"
  done
}

# train_as USER SBATCH-OPTIONS: a job of one step that the service has, to its end; its output in $output. A launch gives the service
# a tenth of a second, which a busy machine may miss: then it is begun again.
train_as() {
  local folder=${home%/*}/$1 job
  for _ in 1 2 3 4 5; do
    # What a job measured that was begun again is in a ledger.
    rm -rf "$folder/.local"
    job=$(box on ctl --user="$1" sbatch --parsable -N3 --account=physics --adaptive-train="$2" job.sh --train.steps=1 --store "$store" 3>&-)
    wait_until 90 job_over "$job"
    output=$(<"$folder/slurm-$job.out")
    [[ $output == *'no answer in time'* ]] || break
  done
  echo "$output"
  [[ $(job_field "$job" ExitCode) == 0:0 ]]
}
told_to() { box on ctl --user="$1" adaptive-train "${@:2}" --store "$store"; }
# fails_on_n2 USER-ID TIMES: jobs of that user, in the store, where Slurm has seen him.
fails_on_n2() {
  local copied
  copied=$(sqlite3 -cmd '.timeout 5000' "$shared/profiles.db" "SELECT group_concat(name) FROM pragma_table_info('jobs') WHERE name NOT IN ('id', 'uid', 'owner', 'run_number')")
  sqlite3 -cmd '.timeout 5000' "$shared/profiles.db" "INSERT INTO jobs ($copied, owner, run_number)
      SELECT $copied, $1, (SELECT max(run_number) + 1 FROM jobs) FROM jobs WHERE id = 1;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO failures (job_id, time, host, kind, operation, peer, cause, blamed, cluster, owner)
      SELECT id, unixepoch(), 'n2', 'node_silent', '', '', '', 'node', cluster, owner
        FROM n, (SELECT id, cluster, owner FROM jobs ORDER BY id DESC LIMIT 1);
    INSERT INTO presence (cluster, node, owner, since, until) SELECT cluster, 'n2', $1, 0, unixepoch() FROM jobs WHERE id = 1"
}

outage_known() { [[ $(sqlite3 -readonly "$shared/profiles.db" 'SELECT node FROM outages') == "$1" ]]; }

@test "another user's first run reuses measured links, and sees none of his jobs" {
  serve
  train_as ada reuse=auto
  grep -F 'links: 3 of 3 pairs measured, 0 checked' <<<"$output"
  train_as bob reuse=auto
  grep -F 'links: 0 of 3 pairs measured, 1 checked, 2 taken from the store' <<<"$output"
  [[ $(told_to ada jobs -a -n -P -o User | sort -u) == ada ]]
  [[ $(told_to bob jobs -a -n -P -o User | sort -u) == bob ]]
  # Of links and nodes each is told, and not who measured them.
  for verb in links nodes; do
    told_to bob "$verb" --json >"$BATS_TEST_TMPDIR/$verb"
    run -1 grep -wE 'ada|corpus|runs' "$BATS_TEST_TMPDIR/$verb"
  done
  [[ $(jq -r '.nodes[].node' "$BATS_TEST_TMPDIR/nodes" | sort | xargs) == "n1 n2 n3" ]]
  # Two have checked one pair at most, so that nobody confirms the rest.
  told_to bob links --json | jq -e '[.links[].evidence.trust] | any(. == "unconfirmed")'
}

@test "a node that failed three users' jobs is the next job's spare, with that reason; one user alone blames none" {
  serve
  train_as ada reuse=auto
  fails_on_n2 4001 9
  train_as bob spares=1
  [[ $output != *'kept aside: n2: silent'* ]]
  fails_on_n2 4002 1
  fails_on_n2 4003 1
  train_as bob spares=1
  [[ $output == *'kept aside: n2: silent 3 times in jobs of 3 users in the last day'* ]]
}

@test "nodes reach the service by the network, each user as himself; without munge's word nobody does" {
  serve_by_network
  train_as ada reuse=auto
  grep -F 'links: 3 of 3 pairs measured, 0 checked' <<<"$output"
  train_as bob reuse=auto
  grep -F 'links: 0 of 3 pairs measured, 1 checked, 2 taken from the store' <<<"$output"
  [[ $(sqlite3 "$shared/profiles.db" 'SELECT owner, group_concat(node) FROM (SELECT * FROM presence ORDER BY node) GROUP BY owner') == "$(printf '%s|n1,n2,n3\n' \
    "$(stat -c %u "$home")" "$(stat -c %u "$bobs")" | sort -n)" ]]
  # A job's own word does not count there.
  [[ $(sqlite3 "$shared/profiles.db" 'SELECT DISTINCT account FROM jobs') == physics ]]
  [[ $(told_to ada jobs -a -n -P -o User) == ada ]]
  [[ $(told_to bob jobs -a -n -P -o User) == bob ]]
  box on n2 --user=bob adaptive-train doctor --store "$store" | grep -F 'profile store tcp:ctl:6822: adaptive-traind answers'
  # Whoever is not the service's user gets no offer that he can read.
  echo 'store_uid = 4001' >"$home/.config/adaptive-train/adaptive-train.toml"
  run told_to ada jobs
  [[ $status == 6 && $output == *'Unauthorized credential'* ]]
  rm "$home/.config/adaptive-train/adaptive-train.toml"
  run told_to ada jobs
  [[ $status == 2 && $output == *"needs to know who may answer: set store_uid in"* ]]
}

@test "a node that died in one user's job is the next user's spare, by Slurm's word" {
  serve_by_network
  job=$(box on ctl --user=ada sbatch --parsable -N3 --adaptive-train=reuse=auto job.sh --train.steps=1000000 --parallel.data=3 --store "$store" 3>&-)
  wait_for_steps "$job" 5
  box kill n2
  wait_until 60 grep -q "^going on without n2" "$home/slurm-$job.out"
  # A question goes out at once, and half a minute later, when Slurm has marked the node as down.
  wait_until 120 outage_known n2
  box on ctl scancel "$job"
  wait_until 60 job_over "$job"
  box revive n2
  train_as bob spares=1
  [[ $output == *"kept aside: n2: down by Slurm's word once in the last day"* ]]
}
