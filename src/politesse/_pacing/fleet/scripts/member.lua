-- Keeps the roster of the processes that are at work, and finds out whether this server has lost data.
--
-- The roster is a hash under its own key. A round begins when the roster is new, when another run of the server made
-- the roster, or when a process suspects that the server has lost data. In a new round each process has to report: it
-- renews its leases, closes its closed hosts again, and then calls this script with `report`. No process starts a
-- request until all processes have reported, or until all their leases are over.
--
--   run            the run of the server in which the round began
--   epoch          the name of the round
--   lost           when the round began
--   member:OWNER   the session of a process, the time of its last call, and its phase:
--                  0  the process was at work in an earlier round, or only other processes have named it
--                  1  the process has joined
--                  2  the process has reported
--
--   ARGV[4]   the owner: the process that calls
--   ARGV[5]   its session
--   ARGV[6]   `join`, `report` or `leave`
--   ARGV[7]   the run of the server
--   ARGV[8]   the epoch that the process knows
--   ARGV[9]   1 if the process suspects that this epoch is over
--   ARGV[10]  how long after its last call a process may still have leases
--   ARGV[11]  the other owners that the process knows
--
-- The changes are published to all processes. The fourth word of the reply is the time for which no request may start.
-- The seventh word is the epoch. The eighth word lists the members, each with its session and phase.

local owner, session, act, known_epoch, lease = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[8], duration(ARGV[10])
local members, news = {}, false
for name, value in pairs(state) do
    local member = string.match(name, '^member:(.+)$')
    if member then
        local number, seen, phase = string.match(value, '^(%d+) (%d+) ([012])$')
        if not number then
            return redis.error_reply('FOREIGN the key holds nonsense in its field member')
        end
        members[member] = {session = tonumber(number), seen = math.min(tonumber(seen), now), phase = tonumber(phase)}
    end
end

claim()
if state.run ~= ARGV[7] or ARGV[9] == '1' and known_epoch == state.epoch then
    set('run', ARGV[7])
    set('epoch', ARGV[7] .. '/' .. text(now))
    set('lost', now)
    for _, member in pairs(members) do
        member.phase, member.seen = 0, now
    end
    news = true
end
local epoch, lost = state.epoch, math.min(get('lost'), now)
if known_epoch ~= epoch then
    for known in string.gmatch(ARGV[11], '%S+') do
        members[known] = members[known] or {session = 0, seen = now, phase = 0}
    end
end

local own = members[owner] or {session = session, phase = known_epoch == epoch and 2 or 0}
if act == 'leave' then
    members[owner] = nil
    news = true
else
    local phase = act == 'join' and 1 or own.session == session and own.phase > 0 and 2 or 0
    news = news or own.phase ~= phase or own.session ~= session
    members[owner] = {session = session, seen = now, phase = phase}
end

local wait, words = 0, {}
for name, member in pairs(members) do
    if now > (member.phase < 2 and lost or member.seen) + lease then
        members[name] = nil
        set('member:' .. name, nil)
    else
        if member.phase < 2 then
            wait = lost + lease - now
        end
        words[#words + 1] = name .. ' ' .. text(member.session) .. ' ' .. member.phase
        set('member:' .. name, text(member.session) .. ' ' .. text(member.seen) .. ' ' .. member.phase)
    end
end
if not members[owner] then
    set('member:' .. owner, nil)
end
set('longest', lease)
write()
publish(owner, {'probed', '', text(now)})
if news then
    local here = members[owner] or {session = 0, phase = 0}
    publish('all', {'member', owner, text(here.session), text(here.phase), epoch})
end
return {'members', '', text(now), text(wait), '0', '', epoch, table.concat(words, ' ')}
