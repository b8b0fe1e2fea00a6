# A store that users share: one user's job reuses what another's measured, and a node that failed three users is a spare.
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
  "$ADAPTIVE_TRAIN_BUILD/bin/adaptive-traind" --database "$shared/profiles.db" --socket "$shared/socket" 2>"$shared/log" 3>&- &
  service=$!
  wait_until 60 grep -q ' serves ' "$shared/log"
}
teardown() {
  kill "$service"
  wait "$service" || true
  rm -rf "${shared:?}"
}

# train_as USER SBATCH-OPTIONS: a job of one step that the service has, to its end; its output in $output. A launch gives the service
# a tenth of a second, which a busy machine may miss: then it is begun again.
train_as() {
  local folder=${home%/*}/$1 job
  for _ in 1 2 3 4 5; do
    # What a job measured that was begun again is in a ledger.
    rm -rf "$folder/.local"
    job=$(box on ctl --user="$1" sbatch --parsable -N3 --adaptive-train="$2" job.sh --train.steps=1 --store "$store" 3>&-)
    wait_until 90 job_over "$job"
    output=$(<"$folder/slurm-$job.out")
    [[ $output == *'no answer in time'* ]] || break
  done
  echo "$output"
  [[ $(job_field "$job" ExitCode) == 0:0 ]]
}
told_to() { box on ctl --user="$1" adaptive-train "${@:2}" --store "$store"; }
# fails_on_n2 USER-ID TIMES: jobs of that user, in the store.
fails_on_n2() {
  local copied
  copied=$(sqlite3 -cmd '.timeout 5000' "$shared/profiles.db" "SELECT group_concat(name) FROM pragma_table_info('jobs') WHERE name NOT IN ('id', 'uid', 'owner', 'run_number')")
  sqlite3 -cmd '.timeout 5000' "$shared/profiles.db" "INSERT INTO jobs ($copied, owner, run_number)
      SELECT $copied, $1, (SELECT max(run_number) + 1 FROM jobs) FROM jobs WHERE id = 1;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO failures (job_id, time, host, kind, operation, peer, cause, blamed)
      SELECT (SELECT max(id) FROM jobs), unixepoch(), 'n2', 'node_silent', '', '', '', 'node' FROM n"
}

@test "another user's first run reuses measured links, and sees none of his jobs" {
  train_as ada reuse=auto
  grep -F 'links: 3 of 3 pairs measured, 0 checked' <<<"$output"
  train_as bob reuse=auto
  grep -F 'links: 0 of 3 pairs measured, 1 checked, 2 taken from the store' <<<"$output"
  # The service runs outside of the box, where these users have no names.
  [[ $(told_to ada jobs -a -n -P -o User | sort -u) == "$(stat -c %u "$home")" ]]
  [[ $(told_to bob jobs -a -n -P -o User | sort -u) == "$(stat -c %u "$bobs")" ]]
  # Two have checked one pair at most, so that nobody confirms the rest.
  told_to bob links --json | jq -e '[.links[].evidence.trust] | any(. == "unconfirmed")'
}

@test "a node that failed three users' jobs is the next job's spare, with that reason; one user alone blames none" {
  train_as ada reuse=auto
  fails_on_n2 4001 9
  train_as bob spares=1
  [[ $output != *'kept aside: n2: silent'* ]]
  fails_on_n2 4002 1
  fails_on_n2 4003 1
  train_as bob spares=1
  [[ $output == *'kept aside: n2: silent 3 times in jobs of 3 users in the last day'* ]]
}
