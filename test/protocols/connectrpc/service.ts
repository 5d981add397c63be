/** A service whose procedures have each kind of Connect. Its messages are those of protobuf that wrap one value. */
import { create, createFileRegistry, type DescService } from '@bufbuild/protobuf';
import type { GenService } from '@bufbuild/protobuf/codegenv2';
import {
  type BytesValueSchema,
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers,
  MethodOptions_IdempotencyLevel,
  type StringValueSchema,
} from '@bufbuild/protobuf/wkt';

const { NO_SIDE_EFFECTS } = MethodOptions_IdempotencyLevel;
const BYTES = '.google.protobuf.BytesValue';
const STRING = '.google.protobuf.StringValue';

const file = create(FileDescriptorProtoSchema, {
  name: 'test.proto',
  package: 'test',
  syntax: 'proto3',
  dependency: ['google/protobuf/wrappers.proto'],
  service: [
    {
      name: 'Everything',
      method: [
        { name: 'Echo', inputType: BYTES, outputType: BYTES, options: { idempotencyLevel: NO_SIDE_EFFECTS } },
        { name: 'Fail', inputType: STRING, outputType: STRING },
        { name: 'Wait', inputType: STRING, outputType: STRING },
        { name: 'Absent', inputType: STRING, outputType: STRING },
        { name: 'Count', inputType: STRING, outputType: STRING, serverStreaming: true },
        { name: 'Join', inputType: STRING, outputType: STRING, clientStreaming: true },
        { name: 'Talk', inputType: BYTES, outputType: BYTES, clientStreaming: true, serverStreaming: true },
      ],
    },
  ],
});

type Kind<K, I, O> = { methodKind: K; input: I; output: O };
type Text = typeof StringValueSchema;
type Bytes = typeof BytesValueSchema;

export const Everything = createFileRegistry(file, (name) =>
  name === file_google_protobuf_wrappers.proto.name ? file_google_protobuf_wrappers : undefined,
).getService('test.Everything') as DescService as GenService<{
  echo: Kind<'unary', Bytes, Bytes>;
  fail: Kind<'unary', Text, Text>;
  wait: Kind<'unary', Text, Text>;
  absent: Kind<'unary', Text, Text>;
  count: Kind<'server_streaming', Text, Text>;
  join: Kind<'client_streaming', Text, Text>;
  talk: Kind<'bidi_streaming', Bytes, Bytes>;
}>;
