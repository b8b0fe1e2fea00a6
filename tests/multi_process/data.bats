# adaptive-train data: from text to tokens, what is shown of them, and what is refused.
load run
bats_require_minimum_version 1.5.0

setup() {
  work=$(mktemp -d "$BATS_TEST_TMPDIR/data.XXXXXX")
  write_small_model "$work"
  cd "$work" || exit 1
  # A document per line of the corpus.
  jq -Rc '{id: input_line_number, text: (. + "\n")}' corpus.txt >docs.jsonl
}
teardown() { [[ ${builder-} ]] && kill -9 "$builder" 2>/dev/null || true; }

data() { "$bin/adaptive-train" data "$@"; }

# refused CODE TEXT ARG...: `data ARG...` ends with CODE and one line on stderr, but for progress, that contains TEXT.
refused() {
  local code=$1 text=$2 status=0
  shift 2
  data "$@" >out 2>err || status=$?
  cat err
  echo "exit code $status, expected $code with: $text"
  ((status == code)) && [[ $(grep -vc ' % of .* MB' err) == 1 ]] && grep -qF -- "$text" err
}

files() { (cd "$work" && echo set*); }

@test "jsonl to tokens with a new vocabulary, and back to text" {
  data build docs.jsonl --output set --vocab-size 300 --json >record.json
  diff record.json set.json
  [[ $(files) == "set.bin set.idx set.json set.model" ]]
  jq -e '.format_version == 1 and .vocab_size == 300 and .end_of_document == 2 and .token_type == "uint16"' set.json
  [[ $(jq .documents set.json) == "$(wc -l <docs.jsonl)" ]]
  [[ $(stat -c %s set.bin) == $((2 * $(jq .tokens set.json))) ]]
  for path in set set.bin set.idx; do
    data show "$path" --json >shown.json
    jq -e '.format == "megatron" and .vocab_size == 300' shown.json
    [[ $(jq '[.tokens, .documents]' shown.json) == "$(jq '[.tokens, .documents]' set.json)" ]]
  done
  # The first document, up to its end.
  data show set --json --tokens 100000 | jq -r '.first_text | split("<2>")[0]' | diff - <(head -n 1 corpus.txt; echo)
  data show set | grep -q '^format .*megatron.*uint16 tokens'
}

@test "text as bytes; several inputs; documents without text are left out" {
  : >empty.txt
  data build corpus.txt --tokenizer bytes --output new/folder/set >out
  [[ -s new/folder/set.bin ]]
  data build corpus.txt empty.txt docs.jsonl --tokenizer bytes --output set >out
  grep -q 'documents, vocabulary of 257 (bytes); 256 ends a document' out
  grep -q '1 documents without text were left out' out
  [[ $(jq '[.documents, .empty_documents]' -c set.json) == "[$(($(wc -l <docs.jsonl) + 1)),1]" ]]
  [[ $(files) == "set.bin set.idx set.json" ]]
  data show set --tokens 20 | grep -qF "$(head -c 19 corpus.txt | head -n 1)"
}

@test "the same text gives the same bytes; a given model is used as it is" {
  data build docs.jsonl --output set --vocab-size 300
  data build docs.jsonl --output set2 --vocab-size 300
  cmp set.bin set2.bin
  cmp set.model set2.model
  data build docs.jsonl --output set3 --model set.model
  cmp set.bin set3.bin
  cmp set.model set3.model
}

@test "options that would do nothing, and wrong ones, are refused" {
  refused 2 "leave it out with --tokenizer bytes" build docs.jsonl --output set --tokenizer bytes --vocab-size 300
  refused 2 "leave it out with --model" build docs.jsonl --output set --model x.model --normalize none
  refused 2 "--tokenizer" build docs.jsonl --output set --tokenizer words
  refused 2 "--output" build docs.jsonl
  refused 2 "INPUT" build --output set
  refused 2 "subcommand"
  [[ $(files) == 'set*' ]]
}

@test "inputs that are missing, malformed or no UTF-8 are named with their place, and nothing is written" {
  refused 2 "gone.txt: cannot be opened: No such file or directory" build gone.txt --output set --tokenizer bytes
  printf '{"text":"x"}\n{"text":\n' >bad.jsonl
  refused 2 "bad.jsonl: line 2: it is not JSON from column" build docs.jsonl bad.jsonl --output set --tokenizer bytes
  printf '{"body":"x"}\n' >key.jsonl
  refused 2 'key.jsonl: line 1: it has no "text"' build key.jsonl --output set --tokenizer bytes
  data build key.jsonl --jsonl-key body --output key --tokenizer bytes
  printf 'abc\xffdef' >latin.txt
  refused 2 "latin.txt: byte 3 (0xff) is not UTF-8" build latin.txt --output set --tokenizer bytes
  data build latin.txt --output latin --tokenizer bytes --invalid-utf8 replace
  : >empty.txt
  refused 2 "the inputs have no text" build empty.txt --output set --tokenizer bytes
  [[ $(files) == 'set*' ]]
}

@test "a vocabulary that the text cannot fill: one line with what is allowed, which then works" {
  refused 2 "the text is too small for a vocabulary of 32000 tokens: allowed are" build docs.jsonl --output set
  most=$(grep -o 'allowed are [0-9]*' err | tr -dc 0-9)
  data build docs.jsonl --output set --vocab-size "$most"
  refused 2 "set.bin: it exists" build docs.jsonl --output set --vocab-size "$most"
  data build docs.jsonl --output set --vocab-size 300 --overwrite
  [[ $(jq .vocab_size set.json) == 300 ]]
}

@test "a line of 10 MB is a document" {
  { printf '{"text":"'; head -c 10000000 /dev/zero | tr '\0' x; printf '"}\n{"text":"y"}\n'; } >long.jsonl
  data build long.jsonl --output set --tokenizer bytes
  [[ $(jq '[.documents, .tokens]' -c set.json) == "[2,10000003]" ]]
}

@test "Ctrl-C and SIGTERM leave no file behind, whether training or writing" {
  data build docs.jsonl --output small --vocab-size 300
  for _ in {1..400}; do cat corpus.txt; done >large.txt
  for signal in INT TERM; do
    "$bin/adaptive-train" data build large.txt --output set --model small.model >out 2>err 3>&- &
    builder=$!
    wait_until 60 compgen -G 'set.bin.*.tmp'
    kill -"$signal" "$builder"
    status=0
    wait "$builder" || status=$?
    cat err
    [[ $signal/$status == INT/130 || $signal/$status == TERM/143 ]]
    grep -q 'nothing was written' err
    [[ $(files) == 'set*' ]]
  done
  "$bin/adaptive-train" data build large.txt --output set --vocab-size 300 >out 2>err 3>&- &
  builder=$!
  wait_until 60 grep -q 'reading for the vocabulary' err
  kill -TERM "$builder"
  status=0
  wait "$builder" || status=$?
  ((status == 143))
  [[ $(files) == 'set*' ]]
}

@test "a full disk leaves nothing behind" {
  mkdir small
  unshare --mount bash -c '
    mount -t tmpfs -o size=100k tmpfs small
    status=0
    "$1/adaptive-train" data build corpus.txt --output small/set --tokenizer bytes 2>err || status=$?
    ls -A small >left
    exit "$status"' _ "$bin" && status=0 || status=$?
  cat err
  ((status == 2))
  grep -q 'small/set.bin: No space left on device' err
  [[ ! -s left ]]
}

@test "a data set that is torn or foreign is refused by file and byte" {
  data build docs.jsonl --output set --tokenizer bytes
  truncate -s -2 set.bin
  refused 2 "set.bin: " show set
  grep -q 'it is cut off' err
  printf 'x' | dd of=set.idx conv=notrunc status=none
  refused 2 "set.idx: no Megatron index" show set
  rm set.idx
  refused 2 "set.bin: a .bin without an .idx beside it" show set.bin
  refused 2 "no file matches" show 'none*'
  data show set.bin --format uint16 --json | jq -e '.documents == null and .format == "uint16"'
  data show corpus.txt | grep -q 'bytes (it has no .idx beside it and no llm.c header)'
}
