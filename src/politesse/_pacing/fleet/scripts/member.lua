-- Keeps the roster of the processes of a fleet, and finds out whether this server has lost data. A call costs the same
-- however many processes there are.
--
-- A round is a time in which the server loses no data. A round begins when the roster is new, when another run of the
-- server goes on with it, or when a process suspects that the server has lost data. In a new round no process starts a
-- request until all processes that were known have reported, or until all their leases are over.
--
-- Nobody needs to name those processes: a version, a count and the sum of their ids tell whether all are there. Each
-- process remembers the three as it knew them last. The highest version counts.
--
--   KEYS[1]  a hash:
--     format          the version of these fields
--     run             the run of the server in which the round began
--     epoch           the name of the round
--     lost            when the round began
--     open            1 once requests may start
--     ver, cnt, sum   how often a process has joined or left, how many are here, and the sum of their ids
--     xver, xcnt, xsum  the same of those who are expected to report in this round
--     rcnt, rsum      how many of them have reported, and the sum of their ids
--   KEYS[2]  a sorted set: the id of each process, by the time of its last report
--
--   ARGV[1]  the id of the process: a whole number below 2^48
--   ARGV[2]  `report` or `leave`
--   ARGV[3]  the run of the server
--   ARGV[4]  the epoch that the process knows, or empty
--   ARGV[5]  1 if it suspects that this epoch is over
--   ARGV[6], ARGV[7], ARGV[8]  the version, the count and the sum as it knew them last
--   ARGV[9]  how long after its last report a process may still have leases
--   ARGV[10] how long a round waits at least, so that processes that nobody knows can report, too
--
-- The reply: `members`, the time, how long no request may start, the epoch, the version, the count, the sum, the age of
-- the round, and how many have not reported.

if redis.replicate_commands then
    redis.replicate_commands() -- a Redis before 7 may be set up to refuse writes after TIME; this call permits them
end

local roster, members, id = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local BASE = 2 ^ 48
local MOST_DEAD = 5 -- so many silent processes are dropped in one call
local NUMBERS = {'lost', 'ver', 'cnt', 'sum', 'xver', 'xcnt', 'xsum', 'rcnt', 'rsum'}

local function text(number)
    return string.format('%.0f', number)
end

local found = redis.pcall('HMGET', roster, 'format', 'run', 'epoch', 'open', unpack(NUMBERS))
local kind = redis.call('TYPE', members).ok
local is_sound = found[1] == '2' and (kind == 'zset' or kind == 'none')
local n = {}
for place, name in ipairs(NUMBERS) do
    local digits = is_sound and found[place + 4] or '0'
    is_sound = is_sound and string.find(digits, '^%d+$') and tonumber(digits) <= 2 ^ 53
    n[name] = tonumber(digits) or 0
end
if not is_sound then -- it is lost, or another program has written it: all processes report again
    redis.call('DEL', roster, members)
    found, n = {}, {lost = 0, ver = 0, cnt = 0, sum = 0, xver = 0, xcnt = 0, xsum = 0, rcnt = 0, rsum = 0}
end
local run, epoch, open = found[2], found[3], found[4] == '1'

if run ~= ARGV[3] or not epoch or ARGV[5] == '1' and ARGV[4] == epoch then
    if epoch and open then -- a round that was not over expects whom it expected before
        n.xver, n.xcnt, n.xsum = n.ver, n.cnt, n.sum
    end
    redis.call('DEL', members)
    epoch, open, n.lost, n.cnt, n.sum, n.rcnt, n.rsum = ARGV[3] .. '/' .. text(now), false, now, 0, 0, 0, 0
end
n.lost = math.min(n.lost, now)

local function count(who, sign)
    n.ver, n.cnt, n.sum = n.ver + 1, math.max(0, n.cnt + sign), (n.sum + sign * who) % BASE
end

local is_here = redis.call('ZSCORE', members, id)
if not open and not is_here and ARGV[4] ~= '' and ARGV[4] ~= epoch then
    local version = tonumber(ARGV[6])
    if version > n.xver then
        n.xver, n.xcnt, n.xsum = version, tonumber(ARGV[7]), tonumber(ARGV[8])
    end
    n.ver = math.max(n.ver, version)
    n.rcnt, n.rsum = n.rcnt + 1, (n.rsum + tonumber(id)) % BASE
end
if ARGV[2] ~= 'leave' then
    redis.call('ZADD', members, text(now), id)
    if not is_here then
        count(tonumber(id), 1)
    end
elseif is_here then
    redis.call('ZREM', members, id)
    count(tonumber(id), -1)
end
local lease = tonumber(ARGV[9])
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', text(now - lease), 'LIMIT', 0, MOST_DEAD)) do
    redis.call('ZREM', members, dead)
    count(tonumber(dead), -1)
end

local wait = 0
if not open then
    local are_all_here = n.rcnt >= n.xcnt and n.rsum == n.xsum
    wait = n.lost + (are_all_here and tonumber(ARGV[10]) or lease) - now
    open = wait <= 0
end
local words = {'format', '2', 'run', ARGV[3], 'epoch', epoch, 'open', open and '1' or '0'}
for _, name in ipairs(NUMBERS) do
    words[#words + 1] = name
    words[#words + 1] = text(n[name])
end
redis.call('HSET', roster, unpack(words))
for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, text(math.ceil(math.max(2 * lease, 600 * 1000000) / 1000)))
end
return {
    'members', text(now), text(math.max(0, wait)), epoch, text(n.ver), text(n.cnt), text(n.sum), text(now - n.lost),
    text(math.max(0, n.xcnt - n.rcnt)),
}
