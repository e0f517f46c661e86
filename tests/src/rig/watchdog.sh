# The watchdog of one throwaway folder: sh FOLDER/watchdog FOLDER SIGNAL KEEP
#
# Its standard input is a pipe whose other end only the test process holds. However that process ends, the pipe closes; then what works
# in the folder is stopped, and the folder is removed. A line on the pipe before that says that the test process is done in good order.
trap '' INT TERM HUP QUIT PIPE
cd /
unset WATCHDOG
folder=$1 signal=$2 keep=$3

echo ready
exec >/dev/null
ordered=
while read -r _; do ordered=yes; done

# The servers of the rig in the folder: by their working directory, and by name, lest a person who looks around there is taken for one.
servers() {
  for process in /proc/[0-9]*; do
    [ "$process/cwd" -ef "$folder" ] || [ "$process/cwd" -ef "$folder/data" ] || [ "$process/cwd" -ef "$folder/disk/data" ] || continue
    { read -r name <"$process/comm"; } 2>/dev/null || continue
    case $name in
      postgres | postmaster | initdb | pg_* | pgbouncer | redis-server | valkey-server) printf '%s ' "${process#/proc/}" ;;
    esac
  done
  # Without /proc there is only what the server itself wrote down.
  if [ ! -d /proc/1 ] && [ -f "$folder/data/postmaster.pid" ]; then head -n 1 "$folder/data/postmaster.pid"; fi
}

nap() { sleep 0.05 2>/dev/null || sleep 1; }

tries=0
while left=$(servers) && [ -n "$left" ]; do
  # A stopped process dies only once it is continued. After ten seconds the polite time is over.
  if [ "$tries" -ge 200 ]; then how=KILL; else how=$signal; fi
  case $tries in 0 | 20? | 40?) kill -s "$how" $left 2>/dev/null ;; esac
  kill -s CONT $left 2>/dev/null
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || break
  nap
done

[ -n "$keep" ] && exit 0
# A disk of its own, if the test gave it one; whoever still looks around there keeps it alive, but no longer in this place.
[ ! -d "$folder/disk" ] || umount -l "$folder/disk" 2>/dev/null
tries=0
while [ -e "$folder" ] && [ "$tries" -lt 20 ]; do
  rm -rf "$folder" 2>/dev/null || nap
  tries=$((tries + 1))
done

# A process that was killed may have had a child that was not yet the program it was to become, and made the folder anew.
[ -n "$ordered" ] && exit 0
tries=0
while [ "$tries" -lt 60 ]; do
  [ ! -e "$folder" ] || rm -rf "$folder" 2>/dev/null
  tries=$((tries + 1))
  nap
done
