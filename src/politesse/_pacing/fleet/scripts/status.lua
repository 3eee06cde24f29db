-- Reports the state of a host; writes nothing. The reply has these words:
--
--   the time
--   when the host was requested last, or will be requested next
--   until when the host is closed
--   the reason why it is closed
--   the interval that its answers ask for
--   the longest interval of a request
--   for each request under way: `lease`, its ticket, and one word with the end of the lease, the session and the URL
--   for each request in the queue: `queue`, its ticket, and its URL

local found = {
    text(now), text(get('last')), text(get('closed')), state.why or '', text(get('pace')), text(get('longest')),
}
for ticket in pairs(leases) do
    table.insert(found, 'lease')
    table.insert(found, ticket)
    table.insert(found, state['lease:' .. ticket])
end
for _, waiting in ipairs(queue) do
    table.insert(found, 'queue')
    table.insert(found, waiting.ticket)
    table.insert(found, waiting.url)
end
return found
