"""Runs rdma-core's own tests, those of pyverbs, and prints the outcome of each as a line of JSON.

Arguments: the folder that has the folder `tests`, the device, an address of it, and the modules.
"""
import json
import sys
import unittest

FOLDER, DEVICE, ADDRESS, *MODULES = sys.argv[1:]
sys.path[:0] = [FOLDER, f'{FOLDER}/tests']
sys.argv[1:] = ['--dev', DEVICE]

from args_parser import parser  # noqa: E402

parser.parse_args()
import tests.base  # noqa: E402


def add_address(self, device, port, index):
    """The tests look for the address by the PCI device of the interface, which virtual interfaces lack."""
    self.args.append([device, port, index, ADDRESS, None])


tests.base.RDMATestCase._get_ip_mac = add_address


class Outcomes(unittest.TestResult):
    def tell(self, test, outcome, text=''):
        print(json.dumps({'test': test.id(), 'outcome': outcome, 'text': text}), flush=True)

    def addSuccess(self, test):
        self.tell(test, 'passed')

    def addSkip(self, test, reason):
        self.tell(test, 'skipped', reason)

    def addFailure(self, test, error):
        self.tell(test, 'failed', self._exc_info_to_string(error, test))

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(subtest, error)


for module in MODULES:
    unittest.defaultTestLoader.loadTestsFromName(f'tests.test_{module}').run(Outcomes())
