-- Reports the state of the host; writes nothing.
--
-- It returns the time; when the host was asked last, or is to be asked next; until when it is closed, and by what; the
-- interval that its answers ask for, and the longest one of a request. Then three words for each request: `lease`, its
-- ticket, and until when it counts as under way with its URL; or `queue`, its ticket, and its URL.

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
