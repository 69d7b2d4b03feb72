// The client's own declarations, read by its users' own compiler: is a value all that its declared type promises?

import { createRequire } from 'node:module';
import path from 'node:path';
import ts from 'typescript';

const client = path.dirname(createRequire(import.meta.url).resolve('together-ai'));
const declared = [
  'resources/top-level.d.mts',
  'resources/beta/clusters/clusters.d.mts',
  'resources/beta/clusters/storage.d.mts',
  'resources/beta/clusters/remediations.d.mts',
].map((name) => path.join(client, name));

const program = ts.createProgram(declared, { strict: true, lib: ['lib.es2020.d.ts'], types: [], skipLibCheck: true });
const checker = program.getTypeChecker();

function typeNamed(name: string): ts.Type {
  for (const file of declared) {
    const module = checker.getSymbolAtLocation(program.getSourceFile(file)!)!;
    const found = checker.getExportsOfModule(module).find((symbol) => symbol.name === name);
    if (found) return checker.getDeclaredTypeOfSymbol(found);
  }
  throw new Error(`the client declares no type ${name}`);
}

// The names of a type's fields; `inside` walks down, through arrays: fields('Cluster', 'gpu_worker_nodes').
export function fields(name: string, ...inside: string[]): string[] {
  let type = typeNamed(name);
  for (const step of inside) {
    type = checker.getNonNullableType(checker.getTypeOfSymbol(checker.getPropertyOfType(type, step)!));
    if (checker.isArrayType(type)) type = checker.getTypeArguments(type as ts.TypeReference)[0]!;
  }
  return checker.getPropertiesOfType(type).map((property) => property.name);
}

// Every required field is there and every value is of its declared type, enums included, all the way down.
export function whole<T>(name: string, value: T): T {
  const trouble = wrong(typeNamed(name), value, name);
  if (trouble) throw new Error(trouble);
  return value;
}

function wrong(type: ts.Type, value: unknown, where: string): string | undefined {
  const told = `${where} is declared ${checker.typeToString(type)} and is ${JSON.stringify(value)}`;
  if (type.isUnion()) return type.types.some((member) => !wrong(member, value, where)) ? undefined : told;
  if (!(type.flags & ts.TypeFlags.Object)) return isPlain(type, value) ? undefined : told;
  if (checker.isArrayType(type)) {
    if (!Array.isArray(value)) return told;
    const [item] = checker.getTypeArguments(type as ts.TypeReference);
    return value.map((inner, at) => wrong(item!, inner, `${where}[${at}]`)).find(Boolean);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return told;
  return checker.getPropertiesOfType(type).map((property) => wrongField(property, value, where)).find(Boolean);
}

function isPlain(type: ts.Type, value: unknown): boolean {
  if (type.isLiteral()) return value === type.value;
  if (type.flags & ts.TypeFlags.BooleanLiteral) return value === (checker.typeToString(type) === 'true');
  if (type.flags & ts.TypeFlags.String) return typeof value === 'string';
  if (type.flags & ts.TypeFlags.Number) return typeof value === 'number';
  if (type.flags & ts.TypeFlags.Undefined) return value === undefined;
  throw new Error(`${checker.typeToString(type)} is a kind of type this reader does not know`);
}

function wrongField(property: ts.Symbol, value: object, where: string): string | undefined {
  const inner = (value as Record<string, unknown>)[property.name];
  const optional = (property.flags & ts.SymbolFlags.Optional) !== 0;
  if (inner === undefined) return optional ? undefined : `${where}.${property.name} is missing`;
  return wrong(checker.getTypeOfSymbol(property), inner, `${where}.${property.name}`);
}
