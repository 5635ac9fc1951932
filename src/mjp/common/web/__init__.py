"""What every local page of this package stands on (mjp[serve]).

guard    who may ask: host names, token, origin; the headers that lock a page down
server   the socket, and deadlines for slow clients
"""
