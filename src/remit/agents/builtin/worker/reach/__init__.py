"""How the worker reaches the web, and what it never reaches: the parts of `worker.web_fetch` and `worker.web_search`.

    addresses   which addresses lie outside, and which inside: loopback, private networks, metadata services
    target      an address that was written down, read strictly
    pinned      one request over a connection to addresses that were checked, never resolved again
    follow      redirects one by one, each checked anew
    body        an answer's bytes: bounded on the wire and unpacked
    charset     bytes to text
    extract     text, title and links of a page; the text of a PDF
    limits      how much memory and time the parsers get
    fetch       all of these together: from a request to an answer
    providers   who is asked for `web_search`: SearXNG, Brave, DuckDuckGo, others'
    searching   one search: the providers in their order, and the guarded means they are given
    operations  what the two operations do, from their parameters to a return
    telling     what was fetched or found, as returns
    pace        not more often than is polite, over all processes of the project

Nothing here decides what is allowed: each hop is put to the policy, with the kind of address it leads to.
"""
