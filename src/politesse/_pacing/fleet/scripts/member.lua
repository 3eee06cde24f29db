-- Keeps the roster of the processes that are at work, and finds out whether this server has lost data.
--
-- The key is a hash of its own. A round begins when the roster is new, has been made by another run of the server, or
-- a process suspects this server. Then each process has to report: it renews its tickets and repeats its closings at the
-- keys of the hosts, and says so here. Until all have, or until all their leases are over, no process starts a request.
--
--   run            the run of the server in which the round began; `epoch` names the round, and `lost` is its begin
--   member:OWNER   the session of a process, when it was heard of last, and its state: 0 it is known to others only,
--                  or was at work in an earlier round; 1 it has joined; 2 it has reported
--
-- ARGV[4] owner, [5] its session, [6] `join`, `report` or `leave`, [7] the run of the server, [8] the epoch that the
-- process knows, [9] 1 if it suspects that this epoch is over, [10] the time after which a process that was not heard of
-- has no leases any more, [11] the owners that it knows.
--
-- The changes are published to all processes. The reply has, from its seventh word on, the epoch, and the members with
-- their sessions and states. Its fourth word is for how long nothing starts yet.

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
