"""Every bound of the system, in one place, each with the reason for its number (law 9).

A bound is a promise to callers: beyond it there is a clear refusal that names it, and below it
nothing stalls. Times are milliseconds unless the name says otherwise.
"""

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# Amounts stay exact in every JSON reader (doubles hold integers up to 2**53).
AMOUNT_MAX = 2**53 - 1
# A demand with more keys than this is a mistake, not a machine.
KEYS_MAX = 64
KEY_LENGTH_MAX = 63
NAME_LENGTH_MAX = 128
DESCRIPTION_LENGTH_MAX = 2_000
LABELS_MAX = 32
LABEL_LENGTH_MAX = 512
# A few lines for people; a longer text belongs elsewhere, with a link to it.
COMMENT_LENGTH_MAX = 500
# Priorities are compared, never added, so any range does; this one prints in a table.
PRIORITY_MAX = 1_000_000

# Companies have departments and departments have teams; deeper trees are lists in disguise.
TREE_DEPTH_MAX = 8

# A bulk call is one transaction; a longer one would delay other callers too much.
BULK_MAX = 500
# Pools, policies or tenants of one `cede apply`, which is one transaction: the ledger of a pool is
# rebuilt for each of its policies that changes.
DECLARED_MAX = 2_000
# The largest body we parse: a full bulk call with every field at its bound stays below it.
BODY_BYTES_MAX = 8 * 1024 * 1024
# The largest body of most routes: none of their bodies comes near it.
SMALL_BODY_BYTES_MAX = 64 * 1024
# Commas and brackets of a body, counted while it is read, because its values take many times their
# text in memory. A full bulk call of usual requests has half of the larger number.
VALUES_MAX = 20_000
MANY_VALUES_MAX = 100_000
JSON_DEPTH_MAX = 32

# Headers of a call. Our clients send a dozen; proxies and browsers add as many again.
HEADERS_MAX = 100
HEADER_BYTES_MAX = 64 * 1024
# The time that a caller may take to send the head and the body, and to read a ready answer: a slow
# line brings 8 MiB in a minute, and no idle caller holds a place for longer.
HEAD_TIME = 10 * SECOND
BODY_TIME = MINUTE
ANSWER_TIME = MINUTE
# Open connections, where the descriptor limit allows them: ten thousand agents keep one each.
CONNECTIONS_MAX = 32_768
PAGE_MAX = 500
PAGE_DEFAULT = 100
# Audit entries verified in one call: tens of milliseconds, so that no other caller waits for it.
AUDIT_PIECE_MAX = 2_000
# Commands waiting for the writer; beyond it the server answers 503 and Retry-After.
COMMANDS_MAX = 20_000
# The life of a link that opens the page: long enough to change windows or to send it to oneself.
LINK_LIFE = 5 * MINUTE
# Links of all users together; each is a few hundred bytes of memory.
LINKS_MAX = 1_000
IDEMPOTENCY_KEY_LENGTH_MAX = 128
# Long enough for any client's retries, short enough that the table stays small.
IDEMPOTENCY_LIFE = DAY

# A month, which is how far people look back. Held time stays for reports, by days.
KEEP_REQUESTS_DEFAULT = 30 * DAY
KEEP_EVENTS_DEFAULT = 30 * DAY
# History goes by whole days, so that less would be none; beyond ten years, keep all of it.
KEEP_MIN = DAY
KEEP_MAX = 3_660 * DAY
# Rows that one commit removes: some ten milliseconds of the writer's time.
REMOVED_REQUESTS_MAX = 100
REMOVED_ROWS_MAX = 500
# Levels of pools over time: a row a minute for a little more than a day, so that a whole day can be
# shown, and a row an hour for a little more than a year. Together a pool has at most 11,124 rows of
# some 100 bytes for each key.
HISTORY_FINE = MINUTE
HISTORY_COARSE = HOUR
HISTORY_FINE_KEEP = 25 * HOUR
HISTORY_COARSE_KEEP = 401 * DAY
# How often the clocks of pools are stored: the most that a crash may lose of them.
CLOCKS_EVERY = 10 * SECOND
# Points of one chart, or days of one report: more than fit on a screen.
HISTORY_POINTS_MAX = 500
USAGE_DAYS_MAX = 400
# The time of day is noted against the server's own clock again when it differs by more than this;
# of more notes than this the oldest are removed.
CLOCK_DIFFERENCE = SECOND
CLOCK_NOTES_MAX = 1_000
# The cost of one unit of a key for an hour, in any currency.
HOURLY_COST_MAX = 1_000_000
# Requests that one page of a list examines when its filters match few of them: tens of
# milliseconds. Such a page may be short or empty and still have a next one.
PAGE_SCAN_MAX = 10_000

# A year: longer walltimes and delays are typing errors.
DURATION_MAX = 366 * 24 * HOUR
RETRIES_MAX = 100
BACKOFF_MAX = 10
# A retry never waits longer than this, whatever its back-off says.
RETRY_DELAY_MAX = HOUR

# Work must survive an upgrade or a reboot of its server. The price: the units of a client that is
# killed, or whose machine is gone, return only after this time.
LEASE_DEFAULT = 10 * MINUTE
LEASE_MIN = SECOND
LEASE_MAX = 24 * HOUR
# How long the answer to a renewal may be held back while there is no news.
RENEW_WAIT_MAX = 10 * SECOND
# How long the answer to a wait for a request may be held back: below the minute after which proxies
# give up on a call.
NEWS_WAIT_MAX = 50 * SECOND
# The server's margin before a lease counts as over: clock drift of 1 % and one pass.
LEASE_DRIFT_DIVISOR = 100
LEASE_MARGIN = 500

# Work survives an absence of its server of this length, and starts elsewhere only after it: long
# enough for an upgrade or a reboot of the server, short enough for a dead machine.
NODE_LEASE_DEFAULT = 10 * MINUTE
# A heartbeat every ten seconds: three missed ones are noticed within half a minute, and ten
# thousand nodes are a thousand calls a second.
HEARTBEAT_DEFAULT = 10 * SECOND
HEARTBEAT_MIN = 100
HEARTBEAT_MAX = 10 * MINUTE
# The time from the end of a lease until the last process is certainly gone.
KILL_GRACE = 5 * SECOND
# Devices and tasks have one row each; more than this is not one machine or one request.
DEVICES_MAX = 1024
TASKS_MAX = 4096
# Levels of a topology group: a building, a hall, a row, a spine, a rack, a chassis.
GROUP_DEPTH_MAX = 8
# A policy with more home nodes than this names them by a label.
HOME_NODES_MAX = 4096
# Independent tasks are requests of their own, and one commit.
PARTS_MAX = 500
# Steps of one pipeline run that have their requests at once, each with a process and a few threads
# here. Later steps submit their requests in turn.
STEPS_AT_ONCE_MAX = 256
# Concurrent calls of one asynchronous client: each has a thread while it lasts.
CALLS_AT_ONCE_MAX = 256
# A date such as 20261117 may number the tasks of an array; the text has a few hundred ranges.
ARRAY_NUMBER_MAX = 99_999_999
ARRAY_LENGTH_MAX = 2_000
# Dependencies of one request; an array counts once. Each is looked up when it is submitted.
DEPENDENCIES_MAX = 100
# Linux takes at most 2 MiB for one argument list and environment; users get half of it.
ARGV_BYTES_MAX = 512 * 1024
ENV_MAX = 1000
PATH_LENGTH_MAX = 4096
# A join token for more machines than this need not be bounded.
JOIN_USES_MAX = 1_000
# Checkpoints of ended requests stay for a week after their last change, because people may look at
# them. An agent asks about this many requests at a time whether they have ended.
CHECKPOINT_KEEP_DEFAULT = 7 * 24 * HOUR
SAVED_ASKED_MAX = 100
# Reports in one heartbeat; the rest comes with the next heartbeat, at once.
REPORTS_MAX = 1_000
# The largest clusters of one Slurm controller have about this many nodes.
BRIDGED_NODES_MAX = 16_384
LOG_REPLIES_MAX = 16
# The most of a log that one answer carries: a few of them make a heartbeat that is parsed quickly.
LOG_CHUNK_BYTES = 128 * 1024
# More lines than the last MiB of a log has, which is how far back the agent looks.
LOG_TAIL_MAX = 1_000_000
# A machine that cannot start this many attempts in a row takes no more work for a while.
NODE_FAILURES_MAX = 5
# Then the node is given work again, as often as document 004's system does it: its fault may be
# gone, and if not, it costs a few attempts that use up no retries.
NODE_RETRY = 5 * MINUTE
# Work that outlived this many machines is more likely to be the cause.
LOST_MAX = 10

# Work that left this many times in a row to save itself, and saved nothing, has failed.
LEFT_MAX = 3
# How long the next attempt waits for a node that has its checkpoint.
RESUME_WAIT_DEFAULT = 10 * MINUTE
# Verified checkpoints known of one task; two are enough to go back to the one before.
CHECKPOINTS_KNOWN_MAX = 4

# Document 004's times for a checkpoint and for deferring it.
CHECKPOINT_TIMEOUT_DEFAULT = 10 * MINUTE
DEFERRAL_DEFAULT = 5 * MINUTE
# Waiters wait that long for the units: a day is a mistake.
CHECKPOINT_TIMEOUT_MAX = 24 * HOUR

# The intervals of document 004's own system: undisturbed work is not asked to save itself more
# often than the first, and at least as often as the second. Sensitive work has other intervals.
CHECKPOINT_INTERVAL_MIN_DEFAULT = 5 * MINUTE
CHECKPOINT_INTERVAL_MAX_DEFAULT = 6 * HOUR
# How often the broker judges whether to ask work that may be asked: as often as that system does.
BROKER_PERIOD = 30 * SECOND

# Document 004's grace between SIGTERM and SIGKILL.
GRACE_DEFAULT = 30 * SECOND
# After the grace the holder still has to report; then its units return without a report.
STOP_PROGRESS_MARGIN = 5 * SECOND

# Document 004 lets work finish that has used more than this fraction of its walltime. Fractions are
# from 0 to 1.
NEAR_COMPLETION_FRACTION_DEFAULT = 0.9

# Document 003 and its system: shares are published five times a second; a policy below its share
# starves after half a minute, and aggressively after two.
SHARES_PERIOD_DEFAULT = 200
STARVATION_DEFAULT = 30 * SECOND
AGGRESSIVE_STARVATION_DEFAULT = 2 * MINUTE
# How often a node may be taken from for a starving waiter; how long work may be above a limit.
STAGE_BACKOFF_DEFAULT = 5 * SECOND
OVER_LIMIT_GRACE_DEFAULT = 15 * SECOND
# Weights are compared with each other; these ends are far beyond any use.
WEIGHT_MIN = 1e-6
WEIGHT_MAX = 1e6
# The most that a relaxed guarantee gives at once, in multiples of its flow: more would be a burst.
MULTIPLIER_MAX = 10

# The reference's window for budgets. No tenant can spend the most; a budget of zero is a quota.
BUDGET_WINDOW = 90 * 24 * HOUR
BUDGET_HOURS_MIN = 0.001
BUDGET_HOURS_MAX = 1e12
# A tenant that may use this many times its target has no target.
BURST_MAX = 1_000

# How often later waiters may pass a blocked head, and for how long freed capacity is then withheld
# for it.
BYPASS_MAX_DEFAULT = 64
WITHHOLD_MAX_DEFAULT = HOUR

# The search for sets of more than three victims takes less than a tenth of a second, and no set has
# more than 64. Where there are too many groups of candidates, this many are tried alone:
# milliseconds.
VICTIM_STEPS_MAX = 50_000
VICTIMS_WEIGHED_MAX = 64
VICTIM_PROBES_MAX = 512
# Topology group paths within which victims of the same price are looked for: each is a search.
VICTIM_PATHS_MAX = 32

# Up to this many kinds of candidates every set of victims is weighed: 64 have 50,000 sets of three.
VICTIM_GROUPS_DEFAULT = 64

# The largest offline snapshot that the engine reads.
SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024
# How often a pass repeats its steps before it leaves the rest to the next pass. Two or three do.
ROUNDS_MAX = 100
# A pass with at most so many victims is rehearsed, which costs about what the pass does. Victims of
# earlier passes stop along with them while they are no more, or no more than the second number.
REHEARSED_MAX = 100
REHEARSED_ALONG = 8
# How often victims stop and come back in a rehearsal, and how often a pass is made again after one.
REHEARSED_PASSES = 4
REHEARSALS_MAX = 8
# Requests of each kind that a dry run of an edit lists; their number is always given.
PREVIEWED_MAX = 1_000
# How many passes `plan --until-rest` runs before it reports that it did not come to rest.
PASSES_MAX = 10_000
