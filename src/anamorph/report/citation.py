"""How to cite the method."""

from __future__ import annotations

from anamorph import __version__
from anamorph.report.markup import Section

_CITATION = f"""\
<p>If this model is part of your work, please cite the paper that introduced the method:</p>
<blockquote>J. Ashburner, M. Brudfors, K. Bronik and Y. Balbastre. An algorithm for learning shape
and appearance models without annotations. <em>Medical Image Analysis</em> 55 (2019) 197–215.
<a href="https://doi.org/10.1016/j.media.2019.04.008">doi:10.1016/j.media.2019.04.008</a>
</blockquote>
<p>and say that you used anamorph {__version__}.</p>
<pre>@article{{ashburner2019algorithm,
  author  = {{Ashburner, John and Brudfors, Mikael and Bronik, Kevin and Balbastre, Ya{{\\"e}}l}},
  title   = {{An algorithm for learning shape and appearance models without annotations}},
  journal = {{Medical Image Analysis}},
  volume  = {{55}},
  pages   = {{197--215}},
  year    = {{2019}},
  doi     = {{10.1016/j.media.2019.04.008}},
}}</pre>"""


def citation_section() -> Section:
    """Say how to cite the method."""
    return Section("citation", "How to cite", _CITATION)
