#!/usr/bin/env bash
# One function of Kubernetes' own test-cmd, against a server that runs. Stands in the root of its sources.
#
# test_cmd.sh list | prepare | between | FUNCTION       with BIN, the folder of kubectl, HOME and SECURE_API_PORT
#
# `prepare` is what hack/make-rules/test-cmd.sh does to a new server; `between` is what stands in the script between its
# functions. Functions are called as upstream calls them.
set -o errexit
set -o nounset
set -o pipefail

if [[ "$1" == list ]]; then
  grep -oE '^ *record_command run_\w+' test/cmd/legacy-script.sh | sed 's/.* //'
  exit
fi

export TERM=xterm KUBE_TEMP=${HOME}
source hack/lib/init.sh
THIS_PLATFORM_BIN=${BIN}
source hack/lib/test.sh
source test/cmd/legacy-script.sh >/dev/null 2>&1
kube::util::ensure-gnu-sed
export SUPPORTED_RESOURCES=("*") CONTEXT=test

prepare() {
  kubectl config set-credentials test-admin --token admin-token
  kubectl config set-cluster local --insecure-skip-tls-verify --server "https://127.0.0.1:${SECURE_API_PORT}"
  kubectl config set-context "${CONTEXT}" --user test-admin --cluster local
  kubectl config use-context "${CONTEXT}"
  source <(sed -n '/^function create_node/,/^# Run it/p' hack/make-rules/test-cmd.sh)
  create_node
}

record_command() {
  [[ -n "${CHOSEN}" ]] || return 0
  declare -F "${CHOSEN}"
  set +o nounset
  set +o errexit
  "${CHOSEN}"
}

failed() {
  local at=0
  while echo -n "failed at " && caller "${at}"; do at=$((at + 1)); done
  echo "the end"
}
trap failed ERR

# Upstream clears once, at its end.
kube::test::clear_all() {
  stop-proxy || true
}

case "$1" in
  prepare) prepare ;;
  between) CHOSEN="" WHAT="" && runTests ;;
  *) CHOSEN=$1 WHAT=chosen && runTests ;;
esac
