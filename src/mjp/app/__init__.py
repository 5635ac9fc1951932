"""`mjp app`: one local page on which a person watches what MJP does to a photograph, and what a gradient gives away.

pictures      uploads, in memory only
models        the models of the page, and what they say about a picture under jigsaws
jigsaw        the picture under a plan, drawn
leak          one run of attacks: what was asked, what is found, and the command that gives the same
jobs          runs in a process of their own: one at a time, a short queue, progress, cancelling
parameters    what an address or a body asks for
pages, api    answers as HTML and as JSON
application   which address gets which answer
serve         from the options of the command to a listening server
"""
