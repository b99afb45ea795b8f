@0xa9c3f0e6d17b4285;
# How the columns of a batch belong together. These annotations change nothing on the wire; programs that generate code
# from the schema can make checks of them, as the Python binding does (`check_columns`).

annotation entries @0xb1f27c9a4e6d8035 (struct) :Text;
# Each list has as many entries as the one named here, or none at all, unless the list says otherwise.

annotation complete @0xc58e13a7f0d2b649 (struct) :Void;
# No list may be left out.

annotation always @0xd3a6e9517c4f8b20 (field) :Void;
# This list may not be left out, unless there are no entries.

annotation payload @0xe7095bd2c83fa164 (field) :Void;
# As `always`; and the sum of its entries is the length of the payload frame.

annotation counts @0xf46d81c0a95e3b72 (field) :Text;
# The sum of its entries is the length of the lists named here, which have entries of their own.

annotation apart @0x9e2b74f5d6a8c013 (field) :Void;
# This list has entries of its own.
