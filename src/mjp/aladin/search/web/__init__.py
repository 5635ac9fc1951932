"""The page of an index, and the same functions as JSON, on Starlette and uvicorn (mjp[serve]).

parameters   what an address asks for
api          answers as JSON
pages        answers as HTML: templates/, page.css, page.js
files        thumbnails, enlarged pictures, originals, drawn explanations
app          which address gets which answer
"""
