-- Reports the state of a host; writes nothing. The reply has these words:
--
--   the time
--   when the host was requested last, or will be requested next
--   until when the host is closed
--   the reason why it is closed
--   the interval that its answers ask for
--   the longest interval of a request
--   the owner that waits for the host, or empty
--   for each request under way: its ticket, when its lease ends, and its URL

if wrong then
    return redis.error_reply('FOREIGN ' .. wrong)
end
local claimer, till = string.match(fields.claim or '', '^(%S+) %d+ (%d+)$')
local found = {
    now, (last()), get('closed'), fields.why or '', get('pace'), get('longest'),
    claimer and tonumber(till) > now and claimer or '',
}
for ticket, lease in pairs(leases) do
    table.insert(found, ticket)
    table.insert(found, lease.expiry)
    table.insert(found, fields['url:' .. ticket] or '')
end
return found
