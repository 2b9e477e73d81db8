"""What the report found by itself: on top, and where the page opens."""

import copy

from page_fixture import TITLE, Page
from sample_model import FINDINGS, sample_model


class Findings(Page):

    def test_stand_on_top_and_the_page_opens_at_the_first(self):
        self.open_sample(findings=FINDINGS)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('#findings li')].map("
                                          "each => each.textContent)"), [each["text"] for each in FINDINGS])
        self.assertEqual(self.browser.run("return document.title"), f"{FINDINGS[0]['text']} · train.py on 3 ranks")
        self.assertBecomes(TITLE + ".startsWith('Rank 2 at 1.8')")
        self.assertBecomes("return document.querySelector('.names .pool[aria-pressed=true]').textContent"
                           ".startsWith('activations')")

    def test_lead_to_their_places(self):
        self.open_sample(findings=FINDINGS)
        self.browser.click("#findings li:nth-child(2) button")
        self.assertBecomes("return document.querySelector('#addresses-title').textContent === arguments[0]",
                           "Addresses of weights, rank 1")

    def test_of_sixty_ranks_are_in_sight(self):
        ranks = sample_model()["ranks"]
        many = [{**ranks[number % len(ranks)], "rank": number} for number in range(60)]
        self.open_sample(ranks=many, findings=[{**FINDINGS[0], "rank": 41}])
        self.assertBecomes("const row = document.querySelector('.names .pool[aria-pressed=true]');"
                           "const names = document.querySelector('.names').getBoundingClientRect();"
                           "return row && row.getBoundingClientRect().top >= names.top &&"
                           "  row.getBoundingClientRect().bottom <= names.bottom")

    def test_without_any_the_page_opens_where_ranks_differ(self):
        self.open_sample()
        self.assertBecomes("return document.querySelector('#findings').hidden")
        self.assertBecomes("return document.querySelectorAll('button.mark').length > 0")
        self.assertBecomes(TITLE + ".startsWith('Rank 0 at 2.691')")

    def test_one_pool_stands_side_by_side_and_what_differs_most_comes_first(self):
        model = sample_model()
        model["ranks"][2]["pools"][1]["bytes"]["allocated"][-1] = 1 << 40
        self.open(model)
        self.browser.run("const filter = document.getElementById('pool-filter'); filter.value = 'activations';"
                         "filter.dispatchEvent(new Event('change'))")
        self.assertBecomes("return document.querySelector('.names .pool').textContent.startsWith('rank 2')")

    def test_a_place_is_elided_at_the_head(self):
        model = sample_model()
        model["texts"][6] = ("/usr/lib/python3/site-packages/commpool/pool.py:10 allocate\n"
                             "/data/experiments/train/weights.py:9 load")
        self.open(model)
        self.assertBecomes("return document.querySelector('#peak table').textContent.includes(arguments[0])",
                           "…/train/weights.py:9 load")

    def test_a_place_is_the_program_s_own_wherever_packages_lie(self):
        model = copy.deepcopy(sample_model())
        for number, file in enumerate(("/usr/lib/python3/dist-packages/numpy/core.py", "/opt/lib/python3.12/io.py",
                                       "/me/path/commpool/torch/_fsdp.py", "/me/pytorch/torch/nn/functional.py"), 2):
            model["texts"][number] = f"{file}:10 call\n/data/torch/train.py:9 load"
        self.open(model)
        self.assertBecomes("return [...document.querySelectorAll('#peak summary')].filter("
                           "each => each.textContent === '…/torch/train.py:9 load').length === 4")
